"""A publication of several tables to a PostgreSQL, a MariaDB and a SQLite Subscriber, and how all ends compare."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from support.databases import Databases
from support.mariadb import MariaDbServer
from support.random_ddl import Column, Session, Table, find_table
from support.site import Rows, Site, execute
from support.spark_here import SparkHere
from support.subscribers import KEY, STATEMENTS, sqlite_execute
from tranrepl.connections import Connection
from tranrepl.model.commands import CallSyntax, Method, Propagation
from tranrepl.model.names import TableName
from tranrepl.settings.publication import Article
from tranrepl.subscriber.registry import dialect_of

_TABLES = (
    "CREATE SCHEMA aside",
    "CREATE TYPE mood AS ENUM ('m1', 'm2')",
    "CREATE TABLE item (id integer PRIMARY KEY, a integer, b text, c varchar(8) NOT NULL DEFAULT 'c')",
    "CREATE TABLE line (doc integer, number smallint, qty numeric(9,2), note text, PRIMARY KEY (doc, number))",
    "CREATE TABLE vendor (id bigint PRIMARY KEY, name text, rating integer, secret text)",
    "CREATE TABLE event (id integer PRIMARY KEY, kind integer, how mood, at timestamptz)",
)
_ROWS = (
    "INSERT INTO item SELECT n, n, 'b' || n FROM generate_series(0, 4) n",
    "INSERT INTO line SELECT n, 1, n, 'note' FROM generate_series(0, 4) n",
    "INSERT INTO vendor SELECT n, 'name ' || n, n, 'secret' FROM generate_series(0, 4) n",
    "INSERT INTO event SELECT n, n, 'm1', '2024-01-01' FROM generate_series(0, 6) n",
)
_FRESH = "as_made_anew"


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """One of the tables; ordinals are those of its columns at the start, even after a rename."""

    base: str
    destination: str
    chosen: frozenset[int] | None = None
    filtered: int | None = None
    """The column that the row filter reads; rows where it is 3 are not published."""

    @property
    def held(self) -> frozenset[int]:
        """Columns that a history may not drop or retype."""
        return frozenset() if self.filtered is None else frozenset({self.filtered})

    def columns(self, table: Table) -> list[Column]:
        return [it for it in table.columns if self.chosen is None or it.ordinal in self.chosen]


TABLES = (
    PublishedTable("item", "item"),
    PublishedTable("line", "lines_copied"),
    PublishedTable("vendor", "vendor", chosen=frozenset({1, 2, 3})),
    PublishedTable("event", "event", filtered=2),
)


@dataclass(frozen=True, slots=True)
class Options:
    """What differs from one history to another in the publication's file."""

    statements: bool = False
    """Commands go by statements, and SQLite is a Subscriber too."""
    upd_cmd: str = "SCALL"
    replica_identity: str = "full"
    read_batch_size: int = 500_000
    commit_batch_size: int = 1000
    apply: str = "auto"
    streams: int = 1
    """Where the database can have several."""


@dataclass
class HistorySite:
    """The publication `purchasing`, and how to query each Subscriber."""

    site: Site
    schema: str
    mariadb: MariaDbServer
    sqlite: str | None
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.names = tuple(it.name for it in self.site.publication.subscriptions)

    def call_updates(self, table: int, syntax: str) -> None:
        """Edit the file: UPDATEs of that table go by this call syntax."""
        articles = list(self.site.publication.articles)
        propagation = Propagation(Method.PROCEDURE, CallSyntax(syntax))
        articles[table] = articles[table].model_copy(update={"upd_cmd": propagation})
        self.site.publication = self.site.publication.model_copy(update={"articles": articles})

    def differences(self, session: Session) -> list[str]:
        """Return in words how the Subscribers' rows and columns differ from the Publisher's."""
        found: list[str] = []
        for published in TABLES:
            table = find_table(session, published.base)
            assert table is not None
            found += self._differences_of(session, published, table)
        return found

    def _differences_of(self, session: Session, published: PublishedTable, table: Table) -> Iterable[str]:
        columns = published.columns(table)
        wanted = _published_rows(session, published, table, columns)
        for name in self.names:
            end = self.site.connections[name]
            scaled = end.kind != "postgres"
            rows = [_normal(columns, row, scaled=scaled) for row in self._rows(end, published, columns)]
            expected = [_normal(columns, row, scaled=scaled) for row in wanted]
            if sorted(map(repr, rows)) != sorted(map(repr, expected)):
                missing = [it for it in expected if it not in rows]
                extra = [it for it in rows if it not in expected]
                yield f"{name}: {published.destination}: missing {missing}, not published {extra}"
            shape = self._shape(end, published.destination)
            fresh = self._fresh_shapes(end, published, table)
            if any(len(shape) != len(it) for it in fresh) or not all(map(_is_one_of, shape, *fresh)):
                yield f"{name}: {published.destination}: has {shape}, made anew it has {fresh}"

    def _rows(self, end: Connection, published: PublishedTable, columns: list[Column]) -> Rows:
        names = [it.name for it in columns]
        match end.kind:
            case "postgres":
                chosen = ", ".join(f'"{it}"::text' for it in names)
                return execute(end, f'SELECT {chosen} FROM "{self.schema}"."{published.destination}"')
            case "mariadb":
                return self.mariadb.execute(
                    f"SELECT {', '.join(names)} FROM {published.destination}", database=self.schema
                )
            case _:
                with closing(sqlite3.connect(end.database or "")) as file:
                    return file.execute(f"SELECT {', '.join(names)} FROM {published.destination}").fetchall()

    def _fresh_shapes(self, end: Connection, published: PublishedTable, table: Table) -> list[Rows]:
        """Return the columns with their types as a new table of the Subscriber has them, with the Publisher's unique
        indexes, and as it would have them without: those that came later change no column."""
        source = TableName(table.schema, table.name)
        chosen = None if published.chosen is None else [it.name for it in published.columns(table)]
        article = Article.model_validate(
            {"source": source, "destination": f"{self.schema}.{_FRESH}", "columns": chosen, **STATEMENTS}
        )
        with self.site.topology.publisher("test") as publisher:
            described = publisher.describe([source])[source]
        plain = replace(described, columns=tuple(replace(it, unique=False) for it in described.columns))
        shapes = []
        for made_of in (described, plain):
            with dialect_of(end).subscriber(end, KEY, "test") as subscriber:
                subscriber.set_up_destination(article, made_of)
            shapes.append(self._shape(end, _FRESH))
            self._drop_fresh(end)
        return shapes

    def _shape(self, end: Connection, table: str) -> Rows:
        match end.kind:
            case "postgres":
                return execute(
                    end,
                    "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
                    f"WHERE attrelid = '\"{self.schema}\".{table}'::regclass AND attnum > 0 AND NOT attisdropped "
                    "ORDER BY attname",
                )
            case "mariadb":
                return self.mariadb.execute(
                    "SELECT column_name, column_type, collation_name FROM information_schema.columns "
                    f"WHERE table_schema = '{self.schema}' AND table_name = '{table}' ORDER BY column_name"
                )
            case _:
                rows = sqlite_execute(end.database or "")(f"SELECT name, type FROM pragma_table_info('{table}')")
                return sorted(rows)

    def _drop_fresh(self, end: Connection) -> None:
        match end.kind:
            case "postgres":
                execute(end, f'DROP TABLE "{self.schema}".{_FRESH}')
            case "mariadb":
                self.mariadb.execute(f"DROP TABLE {_FRESH}", database=self.schema)
            case _:
                sqlite_execute(end.database or "")(f"DROP TABLE {_FRESH}")


def _is_one_of(column: object, *fresh: object) -> bool:
    return column in fresh


def history_site(
    databases: Databases, folder: Path, mariadb: MariaDbServer, schema: str, options: Options
) -> HistorySite:
    """Set up the publication and copy its tables' first rows. `schema` is a fresh database of MariaDB's."""
    subscriptions = [subscription_of(name, options) for name in ("subscriber", "mariadb")]
    sqlite = str(folder / "subscriber.db") if options.statements else None
    if sqlite is not None:
        subscriptions.append(subscription_of("sqlite", options))
    site = Site(
        databases,
        folder / "store",
        [_article(it, schema, options) for it in TABLES],
        SparkHere(),
        subscriptions,
        replicate_ddl=True,
        log_reader={"read_batch_size": options.read_batch_size},
    )
    site.connections["mariadb"] = mariadb.connection(schema, "mariadb")
    site.connections["sqlite"] = Connection("sqlite", "sqlite", database=sqlite)
    site.at_publisher(*_TABLES, *_ROWS)
    site.at_subscriber("CREATE TYPE mood AS ENUM ('m1', 'm2')")
    site.set_up()
    for it in subscriptions:
        site.take_snapshot(subscription=str(it["name"])).raise_error()
    return HistorySite(site, schema, mariadb, sqlite)


def subscription_of(name: str, options: Options) -> Mapping[str, object]:
    return {
        "name": name,
        "connection": name,
        "sync_type": "automatic",
        "commit_batch_size": options.commit_batch_size,
        "apply": options.apply,
        "subscription_streams": 1 if name == "sqlite" else options.streams,
    }


def _article(it: PublishedTable, schema: str, options: Options) -> Mapping[str, object]:
    return {
        "source": f"public.{it.base}",
        "destination": f"{schema}.{it.destination}",
        "pre_creation_cmd": "delete" if it.filtered is None else "truncate",
        **({} if it.chosen is None else {"columns": ["id", "name", "rating"]}),
        **({} if it.filtered is None else {"filter": "kind <> 3"}),
        **(STATEMENTS if options.statements else {"upd_cmd": options.upd_cmd}),
        "replica_identity": options.replica_identity if it.filtered is None else "full",
    }


def _published_rows(
    session: Session, published: PublishedTable, table: Table, columns: list[Column]
) -> list[tuple[Any, ...]]:
    names = ", ".join(f"{it.name}::text" for it in columns)
    condition = ""
    if published.filtered is not None:
        (name,) = (it.name for it in table.columns if it.ordinal == published.filtered)
        condition = f" WHERE {name} <> 3"
    return session.execute(f"SELECT {names} FROM {table.sql}{condition}".encode()).fetchall()


def _normal(columns: list[Column], row: tuple[Any, ...], *, scaled: bool) -> tuple[Any, ...]:
    """Return values that are equal where the databases' values mean the same. `scaled`: numbers have the column's
    digits after the point, and not each its own, where the Publisher's type has no bounds.
    """
    return tuple(_normal_value(it.type_name, value, scaled=scaled) for it, value in zip(columns, row, strict=True))


def _normal_value(type_name: str, value: Any, *, scaled: bool) -> object:
    if value is None:
        return None
    text = str(value)
    if scaled and type_name == "numeric":
        return Decimal(text).normalize()
    match type_name.split("(")[0].split(" ")[0]:
        case "boolean":
            return {"true": "1", "false": "0"}.get(text, text)
        case "double":
            return float(text)
        case "timestamp":
            moment = text.removesuffix("+00")
            return moment.rstrip("0").rstrip(".") if "." in moment else moment
        case _:
            return text
