"""Subscribers of every kind, set up and delivered to below Spark."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pymssql

from support.command_history import Column, History, registered, table_description
from tranrepl.connections import Connection
from tranrepl.distribution.delivery import Delivery, deliver
from tranrepl.jobs.results import JobResult
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import FIRST_XACT_SEQNO
from tranrepl.model.names import TableName
from tranrepl.settings.publication import Article
from tranrepl.subscriber.applier_options import AS_CONFIGURED, ApplierOptions
from tranrepl.subscriber.batching.commit_batches import CommitLimits
from tranrepl.subscriber.registry import dialect_of
from tranrepl.subscriber.subscription import SubscriptionKey

Rows = list[tuple[Any, ...]]
Execute = Callable[..., Rows]

KEY = SubscriptionKey("127.0.0.1:5432", "7711267684752729751", "publisher", "purchasing", "reporting")
STATEMENTS = {"ins_cmd": "SQL", "upd_cmd": "SQL", "del_cmd": "SQL"}


@dataclass(frozen=True, slots=True)
class Kind:
    """A database, and how commands reach it."""

    database: str
    commands: dict[str, str]
    name: str

    @property
    def procedures(self) -> bool:
        return self.commands.get("upd_cmd") != "SQL"


KINDS = (
    Kind("postgres", {}, "postgres procedures"),
    Kind("postgres", STATEMENTS, "postgres statements"),
    Kind("mariadb", {}, "mariadb procedures"),
    Kind("mariadb", {"upd_cmd": "CALL"}, "mariadb procedures, CALL"),
    Kind("mariadb", {"upd_cmd": "MCALL"}, "mariadb procedures, MCALL"),
    Kind("mariadb", {"upd_cmd": "XCALL", "del_cmd": "XCALL"}, "mariadb procedures, XCALL"),
    Kind("mariadb", STATEMENTS, "mariadb statements"),
    Kind("sqlite", STATEMENTS, "sqlite statements"),
    Kind("mssql", {}, "mssql procedures"),
    Kind("mssql", STATEMENTS, "mssql statements"),
)


@dataclass(frozen=True, slots=True)
class DeliveryOfCommands:
    """A delivery with its commands, of which `chunk` arrive at a time. It can be pickled, for a child process."""

    delivery: Delivery
    commands: pa.Table
    chunk: int

    def run(self) -> JobResult:
        return deliver(self.delivery, self.commands.to_batches(max_chunksize=self.chunk))


@dataclass(slots=True)
class Site:
    """One Subscriber. `execute` runs SQL of its own; `schema` is where its tables go."""

    kind: Kind
    connection: Connection
    execute: Execute
    schema: str
    articles: dict[int, RegisteredArticle] = field(default_factory=dict)
    chunk: int = 7
    """Commands that arrive at a time."""

    def quoted(self, name: str) -> str:
        if self.kind.database == "mssql":
            return "[" + name.replace("]", "]]") + "]"
        mark = "`" if self.kind.database == "mariadb" else '"'
        return f"{mark}{name.replace(mark, mark * 2)}{mark}"

    def article(self, table: str, columns: Sequence[Column], **settings: Any) -> RegisteredArticle:
        """Set up an article with its table, procedures and the subscription."""
        (made,) = self.set_up({table: columns}, **settings)
        return made

    def set_up(self, tables: Mapping[str, Sequence[Column]], **settings: Any) -> list[RegisteredArticle]:
        """Set up an article of each table in one session."""
        found: list[RegisteredArticle] = []
        with dialect_of(self.connection).subscriber(self.connection, KEY, "test") as subscriber:
            subscriber.set_up_tables()
            for table, columns in tables.items():
                name, destination = TableName("public", table), TableName(self.schema, table)
                article = Article.model_validate(
                    {"source": name, "destination": destination, **self.kind.commands, **settings}
                )
                described = table_description(name, columns)
                for problem in subscriber.article_problems(article, described):
                    raise problem
                subscriber.set_up_destination(article, described)
                made = registered(article, described, len(self.articles) + 1)
                self.articles[made.article_id] = made
                found.append(made)
            subscriber.set_up_procedures(found)
            subscriber.record_definitions(found)
            subscriber.set_up_watermark()
        return found

    def next_definition(self, old: RegisteredArticle, columns: Sequence[Column]) -> RegisteredArticle:
        """Return the article's definition after a schema change, as a log reader registers it: nothing is set up."""
        described = table_description(old.source, columns)
        commands = {"ins_cmd": str(old.ins_cmd), "upd_cmd": str(old.upd_cmd), "del_cmd": str(old.del_cmd)}
        article = Article.model_validate({"source": old.source, "destination": old.destination, **commands})
        made = registered(article, described, len(self.articles) + 1)
        self.articles[made.article_id] = made
        return made

    def definitions(self) -> dict[str, int]:
        with dialect_of(self.connection).subscriber(self.connection, KEY, "test") as subscriber:
            return subscriber.definitions()

    def watermark(self) -> bytes:
        with dialect_of(self.connection).subscriber(self.connection, KEY, "test") as subscriber:
            return subscriber.watermark()

    def deliver(
        self,
        history: History | pa.Table,
        watermark: bytes = FIRST_XACT_SEQNO,
        transactions: int = 1000,
        options: ApplierOptions = AS_CONFIGURED,
        own_order: frozenset[int] = frozenset(),
    ) -> JobResult:
        """Deliver these commands as a job would, all of them after `watermark`."""
        table = history.table() if isinstance(history, History) else history
        return self.delivery(table, watermark, transactions, options, own_order).run()

    def delivery(
        self,
        table: pa.Table,
        watermark: bytes = FIRST_XACT_SEQNO,
        transactions: int = 1000,
        options: ApplierOptions = AS_CONFIGURED,
        own_order: frozenset[int] = frozenset(),
    ) -> DeliveryOfCommands:
        limits = CommitLimits(transactions, 10_000)
        delivery = Delivery(self.connection, KEY, self.articles, watermark, limits, options, own_order=own_order)
        return DeliveryOfCommands(delivery, table, self.chunk)

    def rows(self, table: str, *columns: str, order: int = 1) -> Rows:
        names = ", ".join(map(self.quoted, columns)) or "*"
        return self.execute(f"SELECT {names} FROM {self.quoted(table)} ORDER BY {order}")


def sqlite_execute(path: str) -> Execute:
    def execute(*statements: str) -> Rows:
        rows: Rows = []
        with closing(sqlite3.connect(path)) as session:
            for statement in statements:
                rows = session.execute(statement).fetchall()
            session.commit()
        return rows

    return execute


def batches(script: str) -> list[str]:
    """Split a script as SQL Server's shell does: at lines that say `go`."""
    return [it for it in re.split(r"(?im)^[ \t]*go[ \t]*(?:--.*)?$", script) if it.strip()]


def mssql_execute(connection: Connection, *statements: str) -> Rows:
    rows: Rows = []
    with closing(
        pymssql.connect(
            server=connection.host or "",
            port=str(connection.port or 1433),
            user=connection.login,
            password=connection.password,
            database=connection.database or "master",
            autocommit=True,
        )
    ) as session:
        cursor = session.cursor()
        for statement in statements:
            cursor.execute(statement)
            rows = [tuple(row) for row in cursor.fetchall()] if cursor.description else []
    return rows
