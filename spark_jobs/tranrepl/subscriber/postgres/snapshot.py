"""A snapshot at a PostgreSQL Subscriber: tables made ready, ranges loaded by COPY, indexes built after."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import psycopg
import pyarrow as pa
from psycopg import sql

from tranrepl.errors import ConfigurationError, DataError, ErrorDetails, ReplicationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.names import TableName
from tranrepl.model.row_images import values
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.composed_sql import condition_sql, type_sql
from tranrepl.postgres.session import Session, own_path, translate, translated_errors
from tranrepl.settings.publication import PreCreation
from tranrepl.subscriber.base.snapshot import EmptiedTables, Loader, Snapshot
from tranrepl.subscriber.command_text import key_text
from tranrepl.subscriber.foreign_keys import ForeignKey
from tranrepl.subscriber.postgres.core import core
from tranrepl.subscriber.postgres.database import POSTGRES
from tranrepl.subscriber.postgres.deferred_indexes import (
    DeferredIndex,
    deferrable_indexes,
    is_referenced,
    read,
    readable,
    written,
)
from tranrepl.subscriber.postgres.destination import find_targets
from tranrepl.subscriber.postgres.subscriber import PostgresSubscriber
from tranrepl.subscriber.postgres.users_code import delete_on_own_path, leave_path
from tranrepl.subscriber.snapshot import OwnedRows, SnapshotArticle
from tranrepl.subscriber.subscription import SubscriptionKey

_SHOWN = 50
"""COPY's errors show a value's first hundred bytes; so many letters of most are among them."""
_KEYS, _KEYS_TOGETHER = sql.Identifier("pg_temp", "tranrepl_keys"), 10_000
_OWN_TABLE = """
SELECT c.oid::bigint FROM pg_catalog.pg_class c
 WHERE c.oid = pg_catalog.to_regclass(%s) AND c.relkind = 'r'
   AND pg_catalog.pg_has_role(current_user, c.relowner, 'USAGE')
"""


class PostgresEmptiedTables(EmptiedTables):
    def __init__(self, subscriber: PostgresSubscriber) -> None:
        super().__init__(subscriber)
        self._driver = subscriber.driver

    def delete_all(self, rows: Collection[OwnedRows], parents: Mapping[str, Collection[str]]) -> None:
        """Delete the rows; those of tables that make a circle by one statement: its end checks foreign keys."""
        try:
            super().delete_all(rows, parents)
        except ConfigurationError:
            self._driver.execute(delete_on_own_path([*map(_deletion, rows)]))

    def delete(self, rows: OwnedRows) -> None:
        self._driver.execute(delete_on_own_path([_deletion(rows)]))

    def may_truncate(self, it: SnapshotArticle) -> bool:
        table = qualified(it.article.destination).as_string(self._driver)
        row = self._driver.execute("SELECT pg_catalog.has_table_privilege(%s, 'TRUNCATE')", [table]).fetchone()
        return row == (True,)

    def truncate(self, articles: Iterable[SnapshotArticle]) -> None:
        tables = sql.SQL(", ").join(qualified(it.article.destination) for it in articles)
        with own_path(self._driver):
            self._driver.execute(sql.SQL("TRUNCATE {}").format(tables))


def _deletion(rows: OwnedRows) -> sql.Composed:
    return sql.SQL("DELETE FROM {} AS {} WHERE {}").format(
        qualified(rows.article.article.destination), sql.Identifier(rows.table), condition_sql(rows.condition or "true")
    )


class PostgresSnapshot(Snapshot):
    def __init__(self, subscriber: PostgresSubscriber) -> None:
        self._tables = PostgresEmptiedTables(subscriber)
        super().__init__(subscriber, self._tables)
        self._driver = subscriber.driver

    def _configure(self, *, not_for_replication: bool) -> None:
        if not_for_replication:
            self._driver.execute("SET LOCAL session_replication_role = replica")

    def _make_ready(
        self, articles: Sequence[SnapshotArticle], interrupted: Collection[str], *, not_for_replication: bool
    ) -> None:
        self._configure(not_for_replication=not_for_replication)
        self._drop([it for it in articles if it.settings.pre_creation_cmd is PreCreation.DROP])
        for it in articles:
            self._model.set_up_destination(it.settings, it.source)
        with translated_errors(self.where):
            self._defer_indexes(articles)
            parents = {} if not_for_replication else self._tables.parents(articles)
            self._empty(articles, interrupted, parents)

    def _drop(self, articles: Sequence[SnapshotArticle]) -> None:
        found = [it for it in articles if self._model.has_destination(it.article.destination)]
        if found:
            tables = sql.SQL(", ").join(qualified(it.article.destination) for it in found)
            self._driver.execute(sql.SQL("DROP TABLE {}").format(tables))

    def _empty(
        self,
        articles: Sequence[SnapshotArticle],
        interrupted: Collection[str],
        parents: Mapping[str, Collection[str]],
    ) -> None:
        truncated: list[SnapshotArticle] = []
        deleted: list[OwnedRows] = []
        for it in articles:
            match it.settings.pre_creation_cmd:
                case PreCreation.DELETE:
                    deleted.append(it.owned)
                case PreCreation.TRUNCATE:
                    truncated.append(it)
                case PreCreation.NONE if it.name in interrupted and self._tables.may_truncate(it):
                    truncated.append(it)
                case PreCreation.NONE if it.name in interrupted:
                    deleted.append(it.owned)
        if truncated:
            self._tables.truncate(truncated)
        self._tables.delete_all(deleted, parents)

    def _defer_indexes(self, articles: Sequence[SnapshotArticle]) -> None:
        """Drop the indexes of tables that setup made and that this login may alter, to build them after the load."""
        created, written_down = self._rows.created(), self._rows.deferred([it.name for it in articles])
        own = {it.name: table for it in articles if it.name in created and (table := self._own_table(it)) is not None}
        plain = {name: deferrable_indexes(self._driver, table) for name, table in own.items()}
        dropped = [(own[name], it.name) for name, found in plain.items() for it in found if it.is_foreign_key]
        drops: list[tuple[bool, sql.Composed]] = []
        for it in (it for it in articles if it.name in own):
            there = plain[it.name]
            whole = it.large and not is_referenced(self._driver, own[it.name], dropped)
            chosen = [index for index in there if index.is_foreign_key or whole]
            # A new snapshot is the remedy where nobody can read it.
            interrupted = set(readable(written_down.get(it.name)) or ()).difference(there)
            self._rows.defer(it.name, written([*chosen, *sorted(interrupted, key=lambda index: index.name)]))
            drops += [(index.is_foreign_key, index.drop(it.article.destination)) for index in chosen]
        # Foreign keys first: they need the keys that they refer to.
        for _, statement in sorted(drops, key=lambda drop: not drop[0]):
            self._driver.execute(statement)

    def _own_table(self, it: SnapshotArticle) -> int | None:
        row = self._driver.execute(_OWN_TABLE, [qualified(it.article.destination).as_string(self._driver)]).fetchone()
        return None if row is None else int(row[0])

    def _left_foreign_keys(self, articles: Sequence[SnapshotArticle]) -> list[tuple[TableName, TableName]]:
        deferred = self._rows.deferred([it.name for it in articles])
        left = [(it.article.destination, index) for it in articles for index in readable(deferred.get(it.name)) or ()]
        return [(table, TableName(*index.referenced)) for table, index in left if index.referenced is not None]

    def _deferred(self, article: SnapshotArticle) -> list[DeferredIndex]:
        """Return what is left to be built: a job that was killed may have built some of it."""
        deferred = read(self._rows.deferred([article.name]).get(article.name), self.where)
        table = self._own_table(article) if deferred else None
        there = [] if table is None else deferrable_indexes(self._driver, table)
        return [it for it in deferred if it not in there]

    def build(self, article: SnapshotArticle) -> None:
        with translated_errors(self.where):
            for it in self._deferred(article):
                if not it.is_foreign_key:
                    self._build(it.build(article.article.destination))
            if not self._analyses_by_itself():
                self._driver.execute(sql.SQL("ANALYZE {}").format(qualified(article.article.destination)))

    def _analyses_by_itself(self) -> bool:
        """Return whether autovacuum analyses tables: it does so soon, and beside everything else."""
        row = self._driver.execute(
            "SELECT current_setting('autovacuum')::boolean AND current_setting('track_counts')::boolean"
        ).fetchone()
        return row == (True,)

    def finish(self, articles: Sequence[SnapshotArticle], foreign_keys: Sequence[ForeignKey]) -> None:
        with translated_errors(self.where):
            for article in articles:
                for it in self._deferred(article):
                    if it.is_foreign_key:
                        self._build(it.build(article.article.destination))
        super().finish(articles, foreign_keys)

    def _build(self, statement: sql.Composed) -> None:
        try:
            with translated_errors(f"{self.where}: {statement.as_string(self._driver)}"):
                self._driver.execute(statement)
        except DataError as error:
            raise DataError(
                f"{error.message}: the rows of the snapshot violate it",
                number=error.report.number,
                database_code=error.report.database_code,
                remedy="foreign_keys: false, or publish what it refers to; where it is your own, drop it",
            ) from error


class PostgresLoader(Loader):
    def __init__(self, session: Session, key: SubscriptionKey, snapshot: str) -> None:
        super().__init__(core(session), POSTGRES, key, snapshot)
        self._driver = session

    def _insert(self, article: RegisteredArticle, chunks: Iterable[bytes]) -> tuple[int, int]:
        # What follows names no operator.
        leave_path(self._driver)
        columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in article.columns)
        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(qualified(article.destination), columns)
        size = 0
        try:
            with self._driver.cursor() as cursor:
                with cursor.copy(statement) as copy:
                    for chunk in chunks:
                        copy.write(chunk)
                        size += len(chunk)
                return cursor.rowcount, size
        except psycopg.Error as error:
            refused = _RefusedValue.of(article, error)
            column = "" if refused is None else f", column {refused.column}"
            problem = translate(f"{self._where}, table {article.destination}{column}", error)
            problem.add(ErrorDetails(article=str(article.source)))
            if refused is not None and isinstance(problem, DataError):
                with suppress(ReplicationError):
                    problem.add(ErrorDetails(key=refused.key(article, chunks)))
            raise problem from error

    def _delete(self, article: RegisteredArticle, keys: pa.StringArray) -> None:
        (target,) = find_targets(self._driver, self._where, [article])
        names = [sql.Identifier(f"k{at}") for at in range(len(article.key_positions))]
        made = sql.SQL("CREATE TEMPORARY TABLE {} ({}) ON COMMIT DROP")
        self._driver.execute(made.format(_KEYS, sql.SQL(", ").join(sql.SQL("{} text").format(it) for it in names)))
        with self._driver.cursor() as cursor, cursor.copy(sql.SQL("COPY {} FROM STDIN").format(_KEYS)) as copy:
            for first in range(0, len(keys), _KEYS_TOGETHER):
                copy.write("".join(f"{it}\n" for it in keys.slice(first, _KEYS_TOGETHER).to_pylist()))
        self._driver.execute(sql.SQL("ANALYZE {}").format(_KEYS))
        key = [target.columns[at] for at in article.key_positions]
        equal = [
            sql.SQL("t.{} {} {}::{}").format(
                sql.Identifier(it.name), sql.SQL(it.equality), name, type_sql(it.type_name)
            )
            for it, name in zip(key, names, strict=True)
        ]
        # One statement: the index of the key may be built after the load, and each one reads the table.
        deletion = sql.SQL("DELETE FROM {} AS t USING {} WHERE {}")
        table = qualified(article.destination)
        self._driver.execute(delete_on_own_path([deletion.format(table, _KEYS, sql.SQL(" AND ").join(equal))]))


@dataclass(frozen=True, slots=True)
class _RefusedValue:
    """A value that a column does not take, as far as COPY says so."""

    line: int
    """From 1."""
    column: str
    shown: str
    """The value in quotes, or its beginning."""

    @classmethod
    def of(cls, article: RegisteredArticle, error: psycopg.Error) -> _RefusedValue | None:
        context = error.diag.context or ""
        found = re.match(rf"COPY {re.escape(article.destination.table)}, line (\d+), column ", context)
        rest = "" if found is None else context[found.end() :]
        named = [it.name for it in article.columns if rest.startswith(f"{it.name}: ")]
        if found is None or not named:
            return None
        return cls(int(found[1]), named[0], rest.removeprefix(f"{named[0]}: "))

    def key(self, article: RegisteredArticle, chunks: Iterable[bytes]) -> str | None:
        """Return the key of the row, which is read again; None where the rows come in another order then, or once."""
        before = 0
        for chunk in chunks:
            rows = chunk.count(b"\n")
            if self.line <= before + rows:
                row = values(chunk.split(b"\n")[self.line - before - 1].decode())
                found = {it.name: value for it, value in zip(article.columns, row, strict=True)}
                if not self.shown.startswith(f'"{(found[self.column] or "")[:_SHOWN]}'):
                    return None
                return key_text((article.columns[at].name, row[at]) for at in article.key_positions)
            before += rows
        return None
