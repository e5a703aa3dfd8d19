"""A destination table of a PostgreSQL Subscriber that a schema change alters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import psycopg
from psycopg import sql

from tranrepl.errors import ConfigurationError, DataError, ReplicationError
from tranrepl.model.catalogue import TableDescription
from tranrepl.model.schema_change import ColumnAction, ColumnChange
from tranrepl.model.table_definition import Generation
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.session import Session, translate, translated_errors
from tranrepl.subscriber.batching.steps import SchemaStep
from tranrepl.subscriber.key_change import UnfitRows
from tranrepl.subscriber.postgres.alter_statements import actions, retype
from tranrepl.subscriber.postgres.destination import find_destination
from tranrepl.subscriber.postgres.key_change import delete_rows
from tranrepl.subscriber.schema_changes import DestinationColumn

_REFUSED_BY_DEPENDENTS = frozenset({"2BP01", "0A000"})
"""Something depends on the column; a view or a generated column has the column's type in it."""

_HAS_DEFAULT = (
    "SELECT a.atthasdef FROM pg_catalog.pg_attribute a "
    "WHERE a.attrelid = pg_catalog.to_regclass(%s) AND a.attname = %s AND a.attgenerated = ''"
)


class PostgresTable:
    """The table as it is in the open transaction."""

    def __init__(self, session: Session, where: str, step: SchemaStep, unfit: UnfitRows) -> None:
        """Set which table it is. Where its rows are unknown, a value that does not go over into a new type becomes
        NULL; or, in the primary key, `unfit` says what becomes of its row."""
        self._keeps_rows = step.change.rows_unknown is None
        self._article = step.new or step.old
        self._unfit = unfit
        self._session = session
        self._place = where
        self._name = step.old.destination
        self.where = f"{where}: table {self._name}"

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
                yield from self._retype(change)
            case _:
                for action in actions(change, keeps_rows=self._keeps_rows):
                    yield self._execute(action)

    def _add_generated(self, change: ColumnChange) -> str:
        """Add a column that is generated from others. It does not travel: where the expression has no meaning here, the
        table does without."""
        try:
            (added,) = actions(change, keeps_rows=self._keeps_rows)
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

    def _retype(self, change: ColumnChange) -> Iterator[str]:
        (retyped,) = actions(change, keeps_rows=self._keeps_rows)
        if self._keeps_rows:
            yield self._execute(retyped)
            return
        try:
            with self._session.transaction():
                done = self._execute(retyped)
        except (ConfigurationError, DataError) as error:
            if change.column in {it.name for it in self._described().key}:
                yield from self._retype_key(change, error)
                return
            self._drop_default(change.column)
            loosened = sql.SQL("ALTER COLUMN {} DROP NOT NULL, {} USING NULL")
            done = self._execute(loosened.format(sql.Identifier(change.column), retype(change)))
        yield done

    def _retype_key(self, change: ColumnChange, unfit: ReplicationError) -> Iterator[str]:
        """Retype a column of the primary key to which rows do not go over: they are deleted with all others where they
        may be. Raises ConfigurationError where they may not."""
        if self._unfit.may_go(self._article):
            with translated_errors(self._place):
                delete_rows(self._session, qualified(self._name))
            yield (
                f"{self._place}: rows of {self._name} were deleted: they do not fit the new type of its primary key, "
                "and are copied again"
            )
        self._drop_default(change.column)
        try:
            # What holds no rows takes a type to which there is no cast.
            yield self._execute(retype(change) + sql.SQL(" USING NULL"))
        except DataError:
            key = [self._article.columns[at].name for at in self._article.key_positions]
            raise self._unfit.problem(self._place, self._article, key, unfit.message) from unfit

    def _drop_default(self, column: str) -> None:
        """Drop the default that a column got with the Publisher's: it may not be a value of another type."""
        name = qualified(self._name).as_string(self._session)
        if self._session.execute(_HAS_DEFAULT, [name, column]).fetchone() == (True,):
            self._execute(sql.SQL("ALTER COLUMN {} DROP DEFAULT").format(sql.Identifier(column)))

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
