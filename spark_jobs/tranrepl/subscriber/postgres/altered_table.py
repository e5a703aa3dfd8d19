"""A destination table of a PostgreSQL Subscriber that a schema change alters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import psycopg
from psycopg import sql

from tranrepl.errors import ConfigurationError, DataError
from tranrepl.model.catalogue import TableDescription
from tranrepl.model.names import TableName
from tranrepl.model.schema_change import ColumnAction, ColumnChange
from tranrepl.model.table_definition import Generation
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.session import Session, translate
from tranrepl.subscriber.postgres.alter_statements import actions, retype
from tranrepl.subscriber.postgres.destination import find_destination
from tranrepl.subscriber.schema_changes import DestinationColumn

_REFUSED_BY_DEPENDENTS = frozenset({"2BP01", "0A000"})
"""Something depends on the column; a view or a generated column has the column's type in it."""


class PostgresTable:
    """The table as it is in the open transaction."""

    def __init__(self, session: Session, where: str, name: TableName, *, keeps_rows: bool) -> None:
        """Set which table it is. Where its rows are copied again (not `keeps_rows`), a value that does not go over into
        a new type becomes NULL."""
        self._keeps_rows = keeps_rows
        self._session = session
        self._place = where
        self._name = name
        self.where = f"{where}: table {name}"

    def columns(self) -> Mapping[str, DestinationColumn]:
        return {it.name: DestinationColumn(it.name, it.type_name, it.not_null) for it in self._described().columns}

    def _described(self) -> TableDescription:
        table = find_destination(self._session, self._place, self._name)
        if table is None:
            raise ConfigurationError(f"{self.where} does not exist", remedy="run `tranrepl setup FILE`")
        return table

    def has_type(self, column: DestinationColumn, change: ColumnChange) -> bool:
        return column.type_name == change.type_name

    def alter(self, change: ColumnChange) -> Iterator[str]:
        match change.action:
            case ColumnAction.ADD if change.generation_expression is not None:
                yield self._add_generated(change)
            case ColumnAction.DROP:
                yield from self._drop(change)
            case ColumnAction.RETYPE:
                yield self._retype(change)
            case _:
                for action in actions(change, keeps_rows=self._keeps_rows):
                    yield self._execute(action)

    def _add_generated(self, change: ColumnChange) -> str:
        """Add a column that is generated from others. It does not travel: where the expression has no meaning here, the
        table does without."""
        (added,) = actions(change, keeps_rows=self._keeps_rows)
        try:
            with self._session.transaction():
                return self._execute(added)
        except ConfigurationError as error:
            return f"{self.where}: generated column {change.column} was left out: {error.message}"

    def _drop(self, change: ColumnChange) -> Iterator[str]:
        """Drop a column, and what is generated from it: at the Publisher that had to go too."""
        dependent = [
            it.name
            for it in self._described().columns
            if it.generation is not Generation.NONE and change.column in it.generated_from
        ]
        for name in (*dependent, change.column):
            yield self._execute(sql.SQL("DROP COLUMN IF EXISTS {}").format(sql.Identifier(name)))

    def _retype(self, change: ColumnChange) -> str:
        (retyped,) = actions(change, keeps_rows=self._keeps_rows)
        if self._keeps_rows:
            return self._execute(retyped)
        try:
            with self._session.transaction():
                return self._execute(retyped)
        except (ConfigurationError, DataError):
            loosened = sql.SQL("ALTER COLUMN {} DROP NOT NULL, {} USING NULL")
            return self._execute(loosened.format(sql.Identifier(change.column), retype(change)))

    def _execute(self, action: sql.Composable) -> str:
        statement = sql.SQL("ALTER TABLE {} {}").format(qualified(self._name), action)
        text = statement.as_string(None)
        try:
            self._session.execute(statement)
        except psycopg.Error as error:
            if error.sqlstate in _REFUSED_BY_DEPENDENTS:
                raise _refused_by_dependents(self._place, text, error) from error
            raise translate(self._place, error) from error
        return f"{self._place}: {text}"


def _refused_by_dependents(where: str, text: str, error: psycopg.Error) -> ConfigurationError:
    problem = translate(where, error)
    return ConfigurationError(
        f"{problem.message}: {text} is refused",
        database_code=error.sqlstate,
        remedy="drop what depends on the column at the Subscriber, deliver again, then create it again for the "
        "altered table",
    )
