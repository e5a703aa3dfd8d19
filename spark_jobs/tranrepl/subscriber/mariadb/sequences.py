"""AUTO_INCREMENT columns of a MariaDB or MySQL Subscriber, set to the Publisher's next numbers for a cut-over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import sqlalchemy as sa

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.names import TableName
from tranrepl.model.sequences import ArticleColumn, FoundSequences, SequenceState
from tranrepl.mysql.auto_increment import CountingColumn, counting_columns, numbers_of
from tranrepl.subscriber.base.execution import execute_ddl
from tranrepl.subscriber.mariadb.session import USUAL_WAITS
from tranrepl.subscriber.mariadb.sql_text import qualified_name, quoted_name
from tranrepl.subscriber.sequences import SequenceScope

if TYPE_CHECKING:
    from tranrepl.subscriber.base.database import SqlDatabase

_LOCK_SECONDS = 1
_TYPE = sa.text(
    "SELECT column_type FROM information_schema.columns WHERE table_schema = COALESCE(:schema, DATABASE()) "
    "AND table_name = :table AND column_name = :column"
)


class MariaDbSequences:
    """Each has its table's name."""

    def __init__(self, database: SqlDatabase, session: sa.Connection, where: str) -> None:
        self._database = database
        self._session = session
        self._where = where

    def may_exist(self, scope: SequenceScope) -> bool:
        return scope is SequenceScope.ALL

    def find(self, articles: Sequence[RegisteredArticle], scope: SequenceScope) -> FoundSequences:
        """Return them; none of tables that setup made, unless all are asked for. Those go on after their highest
        number by themselves, and the ALTER TABLE that sets one waits for readers, and others behind it."""
        if scope is SequenceScope.CREATED:
            return FoundSequences()
        with self._database.reading(self._session, self._where):
            found = self._counting([it.destination for it in articles])
        return FoundSequences(
            {
                ArticleColumn(it.source, column.name): column.sequence(it.destination)
                for it in articles
                if (column := found.get(it.destination)) is not None
            }
        )

    def fill_statement(self, table: TableName, column: str) -> str:
        schema, name = self._database.place(table)
        with self._database.reading(self._session, self._where):
            spelled = self._session.scalar(_TYPE, {"schema": schema, "table": name, "column": column}) or ""
        # A type without AUTO_INCREMENT is the one that setup gives `bigint unsigned`.
        counting = spelled if numbers_of(spelled) is not None else "bigint unsigned"
        return (
            f"ALTER TABLE {qualified_name(schema, name)} MODIFY COLUMN {quoted_name(column)} {counting} NOT NULL "
            "AUTO_INCREMENT"
        )

    def advance(self, targets: Mapping[TableName, SequenceState]) -> list[TableName]:
        done = []
        for name, state in sorted(targets.items()):
            following = state.next_number(1)
            with self._database.transaction(self._session, self._where):
                found = self._counting([name]).get(name)
                if found is None or found.next_number >= following:
                    continue
                self._database.wait_for_lock(self._session, _LOCK_SECONDS)
                try:
                    execute_ddl(
                        self._session,
                        f"ALTER TABLE {qualified_name(*self._database.place(name))} AUTO_INCREMENT = {following}",
                    )
                finally:
                    self._session.exec_driver_sql(USUAL_WAITS)
            done.append(name)
        return done

    def _counting(self, tables: Sequence[TableName]) -> dict[TableName, CountingColumn]:
        return counting_columns(lambda query, values: self._session.exec_driver_sql(query, values).all(), tables)
