"""A PostgreSQL Subscriber and a history of commands for it, with schema changes among them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from support.command_history import History, seqno
from support.site import execute
from support.subscribers import KEY, Kind, Rows, Site
from tranrepl.connections import Connection
from tranrepl.jobs.results import JobResult
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import FIRST_XACT_SEQNO
from tranrepl.model.schema_change import ColumnAction, ColumnChange, SchemaChange
from tranrepl.subscriber.applier_options import AS_CONFIGURED, ApplierOptions
from tranrepl.subscriber.base.subscriber import Subscriber
from tranrepl.subscriber.registry import dialect_of

_COLUMNS = """SELECT column_name, data_type, is_nullable, generation_expression FROM information_schema.columns
WHERE table_schema = 'public' AND table_name = %s ORDER BY column_name"""
_PROCEDURES = """SELECT oid::regprocedure::text, md5(prosrc) FROM pg_proc
WHERE pronamespace = 'public'::regnamespace AND proname LIKE 'sp_MS%' ORDER BY 1"""


@dataclass
class World:
    """One Subscriber with table t, and a history of commands for it that grows."""

    site: Site
    history: History = field(default_factory=History)
    watermark: bytes = FIRST_XACT_SEQNO

    def change(
        self, old: RegisteredArticle, new: RegisteredArticle | None, *parts: ColumnChange, **more: object
    ) -> None:
        self.history.schema(
            SchemaChange(
                source=old.source,
                article_id=old.article_id,
                new_article_id=None if new is None else new.article_id,
                tag="ALTER TABLE",
                columns=parts,
                **more,
            )
        )

    def deliver(self, options: ApplierOptions = AS_CONFIGURED) -> JobResult:
        """Deliver what came since the last delivery, in one commit batch for each transaction."""
        result = self.site.deliver(self.history, self.watermark, transactions=1, options=options)
        if result.error is None:
            self.watermark = seqno(self.history.xact)
            self.history.rows.clear()
        return result

    def delivered(self) -> JobResult:
        result = self.deliver()
        assert result.error is None, result.error
        return result

    def subscriber(self) -> AbstractContextManager[Subscriber]:
        connection = self.site.connection
        return dialect_of(connection).subscriber(connection, KEY, "test")

    def columns(self, table: str = "t") -> Rows:
        return self.site.execute(_COLUMNS.replace("%s", f"'{table}'"))

    def state(self) -> tuple[Rows, Rows, bytes, dict[str, int]]:
        return self.columns(), self.site.execute(_PROCEDURES), self.site.watermark(), self.site.definitions()


def schema_world(connection: Connection) -> World:
    return World(Site(Kind("postgres", {}, "postgres"), connection, lambda *it: execute(connection, *it), "public"))


def added(column: str, type_name: str = "integer", **more: str | None) -> ColumnChange:
    return ColumnChange(action=ColumnAction.ADD, column=column, type_name=type_name, **more)


def dropped(column: str) -> ColumnChange:
    return ColumnChange(action=ColumnAction.DROP, column=column)


def renamed(column: str, new_name: str) -> ColumnChange:
    return ColumnChange(action=ColumnAction.RENAME, column=column, new_name=new_name)


def retyped(column: str, type_name: str) -> ColumnChange:
    return ColumnChange(action=ColumnAction.RETYPE, column=column, type_name=type_name)
