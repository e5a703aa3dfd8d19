"""Random histories at a MariaDB or MySQL Publisher: statements for its tables as they are at that moment, writers in
whose sessions they are executed, and the publication with its Subscribers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import pymysql

from support.databases import Databases
from support.history_player import Player
from support.history_site import TABLES, HistorySite, Options, subscription_of
from support.mariadb import MariaDbServer
from support.schema_histories import WRITERS, Write
from support.site import Site, execute
from support.spark_here import SparkHere
from support.subscribers import STATEMENTS

Session: TypeAlias = "pymysql.Connection[Any]"

_TABLES = (
    "CREATE TABLE item (id int PRIMARY KEY, a int, b text, c varchar(8) NOT NULL DEFAULT 'c')",
    "CREATE TABLE line (doc int, number varchar(8), qty decimal(9,2), note text, PRIMARY KEY (doc, number))",
    "CREATE TABLE vendor (id bigint PRIMARY KEY, name text, rating int, secret text)",
    "CREATE TABLE event (id int PRIMARY KEY, kind int, how enum('m1', 'm2'), at datetime(6))",
    "CREATE TABLE aside (id int PRIMARY KEY AUTO_INCREMENT, note text)",
    "INSERT INTO item VALUES (0, 0, 'b', 'c'), (1, 1, NULL, 'd'), (2, 2, 'b2', 'c')",
    "INSERT INTO line VALUES (0, 'x', 1, 'note'), (1, 'x', 2, NULL)",
    "INSERT INTO vendor VALUES (0, 'name', 0, 'secret'), (1, 'other', 1, 'secret')",
    "INSERT INTO event VALUES (0, 0, 'm1', '2024-01-01'), (1, 3, 'm2', '2024-01-01'), (3, 3, NULL, NULL)",
)
_CHOSEN = {"vendor": ("id", "name", "rating")}
_FILTERED = "event"
_COLUMNS = """SELECT column_name, column_type, is_nullable, column_key FROM information_schema.columns
WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position"""
_INDEXES = """SELECT DISTINCT index_name FROM information_schema.statistics
WHERE table_schema = %s AND table_name = %s AND index_name <> 'PRIMARY'"""
_TYPES: Mapping[str, tuple[str, ...]] = {
    "smallint": ("int", "bigint"),
    "int": ("bigint",),
    "bigint": (),
    "varchar(8)": ("varchar(20)", "text"),
    "varchar(20)": ("text", "varchar(300)"),
    "text": ("longtext",),
    "decimal(9,2)": ("decimal(12,2)", "decimal(12,4)"),
    "date": ("datetime",),
    "datetime(3)": (),
    "double": (),
    "varbinary(10)": ("varbinary(40)",),
    "enum('m1','m2')": ("enum('m1','m2','m3')",),
}
"""Types of columns that are added, and what they are altered to."""
_DEFAULTED = ("smallint", "int", "bigint", "varchar(8)", "varchar(20)", "decimal(9,2)", "date", "datetime(3)")


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    type_name: str
    takes_null: bool
    in_key: bool


@dataclass(frozen=True, slots=True)
class _Chooser:
    """Composes one statement; `random` makes all choices."""

    session: Session
    table: str
    columns: tuple[_Column, ...]
    indexes: tuple[str, ...]
    random: Random

    def value(self, type_name: str) -> str:
        number = self.random.randrange(10)
        match type_name.split("(")[0]:
            case "decimal":
                text = f"{number}.25"
            case "date":
                text = f"2024-02-0{number % 9 + 1}"
            case "datetime":
                text = f"2024-02-0{number % 9 + 1} 00:00:00.{number}"
            case "double":
                return repr(number / 7)
            case "enum":
                text = f"m{number % 2 + 1}"
            case "varbinary":
                return f"X'00FF{number:02x}'"
            case "text" | "longtext":
                text = self.random.choice([str(number), "", "a\tb\\é'|\n"[: number + 1], str(number) * 9000])
            case _:
                text = str(number)
        escaped: str = self.session.escape(text)
        return escaped if len(text) < 1000 else f"REPEAT('{number}', 9000)"

    def value_of(self, column: _Column) -> str:
        return "NULL" if column.takes_null and self.random.random() < 0.15 else self.value(column.type_name)

    @property
    def key(self) -> tuple[_Column, ...]:
        return tuple(it for it in self.columns if it.in_key)

    @property
    def free(self) -> list[_Column]:
        """Return columns that may be dropped or renamed."""
        return [it for it in self.columns if not it.in_key and it.name not in _CHOSEN.get(self.table, ())]

    def some_rows(self) -> str:
        first = self.random.randrange(10)
        return f"{self.key[0].name} BETWEEN {first} AND {first + self.random.randrange(4)}"

    def new_name(self) -> str:
        taken = {it.name for it in self.columns}
        return self.random.choice([it for it in (f"c{n}" for n in range(12)) if it not in taken])


def _insert(it: _Chooser) -> str:
    columns = [c for c in it.columns if c.in_key or it.random.random() < 0.8]
    rows = [f"({', '.join(map(it.value_of, columns))})" for _ in range(it.random.randrange(1, 4))]
    begin, end = it.random.choice(
        [("INSERT IGNORE", ""), ("REPLACE", ""), ("INSERT", f" ON DUPLICATE KEY UPDATE {_assignment(it)}")]
    )
    return f"{begin} INTO {it.table} ({', '.join(c.name for c in columns)}) VALUES {', '.join(rows)}{end}"


def _assignment(it: _Chooser) -> str:
    column = it.random.choice([c for c in it.columns if not c.in_key] or list(it.columns))
    return f"{column.name} = {it.value_of(column)}"


def _update(it: _Chooser) -> str:
    if it.random.random() < 0.1:
        both = "item.c = 'both', event.kind = event.kind + 1"
        return f"UPDATE item JOIN event ON item.id = event.id SET {both} WHERE item.id < {it.random.randrange(6)}"
    return f"UPDATE {it.table} SET {_assignment(it)} WHERE {it.some_rows()}"


def _update_key(it: _Chooser) -> str:
    column = it.random.choice(it.key)
    return f"UPDATE {it.table} SET {column.name} = {it.value(column.type_name)} WHERE {it.some_rows()} LIMIT 1"


def _shift_keys(it: _Chooser) -> str:
    name, shift = it.key[0].name, it.random.choice([1, 10])
    return f"UPDATE {it.table} SET {name} = {name} + {shift} WHERE {it.some_rows()} ORDER BY {name} DESC"


def _delete(it: _Chooser) -> str:
    return f"DELETE FROM {it.table} WHERE {it.some_rows()}"


def _truncate(it: _Chooser) -> str | None:
    return f"TRUNCATE TABLE {it.table}" if it.random.random() < 0.3 else None


def _definition(it: _Chooser, name: str) -> str:
    type_name = it.random.choice(list(_TYPES))
    default = f" DEFAULT {it.value(type_name)}" if type_name in _DEFAULTED and it.random.random() < 0.6 else ""
    return f"{name} {type_name}{it.random.choice(['', ' NOT NULL']) if default else ''}{default}"


def _addition(it: _Chooser, name: str) -> str:
    place = it.random.choice(["", "", " FIRST", f" AFTER {it.random.choice(it.columns).name}"])
    return f"ADD COLUMN {_definition(it, name)}{place}"


def _add(it: _Chooser) -> str:
    return f"ALTER TABLE {it.table} {_addition(it, it.new_name())}"


def _add_two(it: _Chooser) -> str:
    name = it.new_name()
    return f"ALTER TABLE {it.table} {_addition(it, name)}, {_addition(it, name + 'b')}"


def _add_now(it: _Chooser) -> str:
    return f"ALTER TABLE {it.table} ADD COLUMN {it.new_name()} datetime(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)"


def _drop(it: _Chooser) -> str | None:
    return f"ALTER TABLE {it.table} DROP COLUMN {it.random.choice(it.free).name}" if it.free else None


def _replace(it: _Chooser) -> str | None:
    """Drop a column and add another one, of its name or not, in one statement."""
    if not it.free:
        return None
    old = it.random.choice(it.free).name
    return f"ALTER TABLE {it.table} DROP COLUMN {old}, {_addition(it, it.random.choice([old, it.new_name()]))}".replace(
        f" AFTER {old}", ""
    )


def _rename(it: _Chooser) -> str | None:
    if not it.free:
        return None
    return f"ALTER TABLE {it.table} RENAME COLUMN {it.random.choice(it.free).name} TO {it.new_name()}"


def _retype(it: _Chooser) -> str | None:
    others = [c for c in it.columns if not c.in_key and _TYPES.get(c.type_name.replace("(11)", ""))]
    if not others:
        return None
    column = it.random.choice(others)
    type_name = it.random.choice(_TYPES[column.type_name])
    return f"ALTER TABLE {it.table} MODIFY {column.name} {type_name}{'' if column.takes_null else ' NOT NULL'}"


def _not_null(it: _Chooser) -> str | None:
    others = [c for c in it.columns if not c.in_key]
    if not others:
        return None
    column = it.random.choice(others)
    return f"ALTER TABLE {it.table} MODIFY {column.name} {column.type_name}{' NOT NULL' if column.takes_null else ''}"


def _comment(it: _Chooser) -> str:
    return f"ALTER TABLE {it.table} COMMENT 'commented'"


def _index(it: _Chooser) -> str:
    if it.indexes:
        return f"DROP INDEX {it.indexes[0]} ON {it.table}"
    column = it.random.choice([c for c in it.columns if "text" not in c.type_name])
    return f"CREATE {it.random.choice(['', 'UNIQUE '])}INDEX by_{column.name} ON {it.table} ({column.name})"


def _turn_key(it: _Chooser) -> str | None:
    names = ", ".join(c.name for c in it.random.sample(it.key, len(it.key)))
    return f"ALTER TABLE {it.table} DROP PRIMARY KEY, ADD PRIMARY KEY ({names})" if len(it.key) > 1 else None


_ROWS: Mapping[str, Callable[[_Chooser], str | None]] = {
    "insert": _insert,
    "update": _update,
    "update key": _update_key,
    "shift keys": _shift_keys,
    "delete": _delete,
    "truncate": _truncate,
}
_DDL: Mapping[str, Callable[[_Chooser], str | None]] = {
    "add": _add,
    "add two": _add_two,
    "add now": _add_now,
    "drop": _drop,
    "replace": _replace,
    "rename": _rename,
    "retype": _retype,
    "not null": _not_null,
    "comment": _comment,
    "index": _index,
    "turn key": _turn_key,
}
"""Those kinds of statements of a history that this server has and an article outlives."""
_ENDED = (1397, 1402)
_REINITIALIZE = ("add now", "replace", "rename", "not null", "turn key")


@dataclass
class MariaDbWriter:
    """One session at the Publisher. What fails is undone to the last savepoint, or as a whole. Some transactions are
    XA's, and some of those are prepared long before they end."""

    server: MariaDbServer
    database: str
    number: int
    say: Callable[[str], None]
    session: Session = field(init=False)
    transactions: int = 0
    xa: str | None = None
    is_open: bool = False
    savepoints: int = 0

    def __post_init__(self) -> None:
        self._begin_session()

    def _begin_session(self) -> None:
        self.session = self.server.connect(self.database)
        wait = 0 if self.server.kind == "mariadb" else 1
        self._query(f"SET lock_wait_timeout = {wait}, innodb_lock_wait_timeout = {wait}")

    def write(self, step: Write) -> None:
        table, random = TABLES[step.table].base, Random(step.seed)
        choose = {**_ROWS, **_DDL}.get(step.kind)
        if choose is None or (step.kind in _DDL and table == _FILTERED and step.kind != "index"):
            return
        if step.kind in _REINITIALIZE and random.random() < 0.7:
            return
        alone = step.kind in _DDL or step.kind == "truncate"
        if alone:
            # It would commit what is open.
            self.end()
        elif not self.is_open:
            self._begin(random)
        text = choose(self._chooser(table, random))
        if text is None:
            return
        try:
            self.execute(text)
        except pymysql.err.Error as error:
            self.say(f"-- {error}")
            if not alone:
                self._recover()

    def transact(self, what: str) -> None:
        if not self.is_open:
            return
        match what:
            case "commit" | "rollback":
                self.end(what)
            case "savepoint":
                self.savepoints += 1
                self.execute(f"SAVEPOINT s{self.savepoints}")
            case "rollback to" if self.savepoints:
                self.execute(f"ROLLBACK TO s{self.savepoints}")
                self.savepoints -= 1
            case "release" if self.savepoints:
                self.execute(f"RELEASE SAVEPOINT s{self.savepoints}")
                self.savepoints -= 1

    def end(self, what: str = "commit") -> None:
        self.savepoints = 0
        if not self.is_open:
            return
        self.is_open = False
        if self.xa is None:
            self.execute(what)
            return
        self.execute(f"XA END '{self.xa}'")
        self.execute(f"XA PREPARE '{self.xa}'")
        if self.transactions % 3 == 0:
            # It outlives its session.
            self.session.close()
            self._begin_session()
        try:
            self.execute(f"XA {what} '{self.xa}'")
        except pymysql.err.Error as error:
            # One that changed nothing ends with its session.
            if error.args[0] not in _ENDED:
                raise

    def execute(self, text: str) -> None:
        self.say(text)
        self._query(text)

    def _begin(self, random: Random) -> None:
        self.transactions += 1
        self.xa = f"{self.database}.{self.number}.{self.transactions}" if random.random() < 0.25 else None
        self.execute("BEGIN" if self.xa is None else f"XA START '{self.xa}'")
        self.is_open = True
        if random.random() < 0.2:
            # Of no article, and in the same transaction.
            self.execute("INSERT INTO aside (note) VALUES ('aside')")

    def _query(self, text: str) -> list[tuple[Any, ...]]:
        with self.session.cursor() as cursor:
            cursor.execute(text)
            return list(cursor.fetchall())

    def _chooser(self, table: str, random: Random) -> _Chooser:
        with self.session.cursor() as cursor:
            cursor.execute(_COLUMNS, [self.database, table])
            columns = tuple(
                _Column(name, spelling.replace("int(11)", "int").replace("bigint(20)", "bigint"), null == "YES", False)
                if key != "PRI"
                else _Column(name, spelling, False, True)
                for name, spelling, null, key in cursor.fetchall()
            )
            cursor.execute(_INDEXES, [self.database, table])
            return _Chooser(self.session, table, columns, tuple(name for (name,) in cursor.fetchall()), random)

    def _recover(self) -> None:
        if self.savepoints:
            self.execute(f"ROLLBACK TO s{self.savepoints}")
        elif self.xa is None:
            self.end("rollback")
        else:
            self.is_open = False
            self.execute(f"XA END '{self.xa}'")
            self.execute(f"XA ROLLBACK '{self.xa}'")


@dataclass
class MariaDbHistorySite(HistorySite):
    """The publication at a MariaDB or MySQL server, in database `schema`."""

    def require_equal(self) -> None:
        publisher = self.site.databases.publisher
        for published in TABLES:
            columns = [name for name, *_ in execute(publisher, _COLUMNS % (f"'{self.schema}'", f"'{published.base}'"))]
            names = ", ".join(_CHOSEN.get(published.base, sorted(columns)))
            condition = " WHERE kind <> 3" if published.base == _FILTERED else ""
            wanted = sorted(map(repr, execute(publisher, f"SELECT {names} FROM {published.base}{condition}")))
            for name in self.names:
                end = self.site.connections[name]
                query = f"SELECT {names} FROM {self.schema}_copy.{published.destination}"
                rows = sorted(map(repr, execute(end, query)))
                difference = [it for it in wanted if it not in rows], [it for it in rows if it not in wanted]
                assert rows == wanted, f"{name}: {published.base}: missing, and not published: {difference}"


def mariadb_history_site(
    databases: Databases, folder: Path, server: MariaDbServer, subscriber: MariaDbServer, schema: str, options: Options
) -> MariaDbHistorySite:
    """Set up the publication of `schema` and copy its tables' first rows to `{schema}_copy`."""
    server.execute(f"CREATE DATABASE {schema} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    server.execute(*_TABLES, database=schema)
    articles = []
    for it in TABLES:
        article = {"source": f"{schema}.{it.base}", "destination": f"{schema}_copy.{it.destination}"}
        more: dict[str, object] = dict(STATEMENTS) if options.statements else {"upd_cmd": options.upd_cmd}
        more["pre_creation_cmd"] = "delete" if it.base != _FILTERED else "truncate"
        if it.base in _CHOSEN:
            more["columns"] = list(_CHOSEN[it.base])
        if it.base == _FILTERED:
            more["filter"] = "kind <> 3"
        articles.append({**article, **more})
    site = Site(
        replace(databases, publisher=server.connection(schema, "publisher")),
        folder / "store",
        articles,
        SparkHere(),
        [subscription_of(name, options) for name in ("subscriber", "mariadb")],
        replicate_ddl=True,
        log_reader={"read_batch_size": options.read_batch_size},
    )
    site.connections["mariadb"] = subscriber.connection(f"{schema}_copy", "mariadb")
    site.set_up()
    for subscription in site.publication.subscriptions:
        site.take_snapshot(subscription=subscription.name).raise_error()
    return MariaDbHistorySite(site, schema, subscriber, None)


@contextmanager
def mariadb_player(at: MariaDbHistorySite, server: MariaDbServer) -> Iterator[Player]:
    told: list[str] = []
    writers = tuple(MariaDbWriter(server, at.schema, number, _say(told, number)) for number in range(WRITERS))
    try:
        yield Player(at, writers, told)
    finally:
        for it in writers:
            it.session.close()


def _say(told: list[str], number: int) -> Callable[[str], None]:
    return lambda text: told.append(f"/* {number} */ {text}")
