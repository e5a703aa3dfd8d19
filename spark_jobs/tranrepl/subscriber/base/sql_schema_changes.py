"""Schema changes applied at a Subscriber that SQLAlchemy reaches: columns, procedures, and the recorded definition."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal

import sqlalchemy as sa
from sqlalchemy import event

from tranrepl.errors import ConfigurationError, DataError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import Method
from tranrepl.subscriber.base.column_changes import ColumnPlan, RowUpdate, SqlColumnTypes, column_plan, table_columns
from tranrepl.subscriber.base.column_steps import ColumnStatements, ColumnStep, RetypedColumn, TableColumn
from tranrepl.subscriber.base.database import SqlDatabase
from tranrepl.subscriber.base.destination import find_destination, target
from tranrepl.subscriber.base.generated_procedures import ProcedureSetup
from tranrepl.subscriber.base.identifiers import table_clause
from tranrepl.subscriber.base.key_changes import AddedToKey, KeyChanges, UnfitRows, added_value, key_change
from tranrepl.subscriber.base.partition_rows import delete_rows, why_rows_unknown
from tranrepl.subscriber.base.schema_changes import SchemaChanges
from tranrepl.subscriber.base.target import SqlTarget
from tranrepl.subscriber.batching.steps import SchemaStep
from tranrepl.subscriber.missing_columns import no_table
from tranrepl.subscriber.procedure_names import PREFIXES
from tranrepl.subscriber.subscription import SubscriptionKey


class SqlSchemaChanges(SchemaChanges):
    def __init__(
        self,
        session: sa.Connection,
        database: SqlDatabase,
        key: SubscriptionKey,
        where: str,
        articles: Mapping[int, RegisteredArticle],
        unfit: UnfitRows,
    ) -> None:
        super().__init__(session, key, where, articles, unfit)
        self._session = session
        self._database = database
        scripter = database.scripter
        self._procedures = None if scripter is None else ProcedureSetup(session, database, scripter, key, where)
        self._ran: list[str] = []
        self._said: list[str] = []

    def _change(self, step: SchemaStep, new: RegisteredArticle) -> list[str]:
        plan = self.plan(step, self.columns(step.old))
        self.require_fitting_rows(step)
        self.require_procedures(step.old, new)
        self.change_columns(step, new, plan)
        key = self.change_key(step)
        self.follow(new)
        self.update_rows(new, plan)
        self.remove_rows(step, new)
        return [*plan.in_words, *key, *self.take_ran()]

    def take_ran(self) -> list[str]:
        """Return the statements that changed the table and its rows since the last call, and what became of its
        procedures."""
        ran = [*(f"{self._where}: ran {it}" for it in self._ran), *self._said]
        self._ran, self._said = [], []
        return ran

    @contextmanager
    def _recorded(self) -> Iterator[None]:
        with _statements_run(self._session) as ran:
            yield
        self._ran += ran

    def columns(self, article: RegisteredArticle) -> tuple[TableColumn, ...]:
        """Return the columns that the article's table has now, published ones by their published names. Raises
        ConfigurationError where it is not there."""
        found = find_destination(self._session, self._database, article.destination)
        if found is None:
            raise no_table(self._where, article)
        published = found.spelled_as([it.name for it in article.columns])
        return table_columns(self._database, self._session.dialect, published)

    def plan(self, step: SchemaStep, before: Sequence[TableColumn]) -> ColumnPlan:
        """Return what there is to do at a table with these columns. Raises ConfigurationError where it does not fit."""
        if step.new is None:
            return ColumnPlan()
        types = SqlColumnTypes(self._database, self._session.dialect)
        plan = column_plan(types, step.change, step.old, step.new, before, self._where)
        if plan.steps and self._statements(step.new) is None:
            raise self._to_be_done_by_hand(step.new, plan.steps)
        return plan

    def _statements(self, article: RegisteredArticle) -> ColumnStatements | None:
        return self._database.column_statements(self._session, self._database.place(article.destination))

    def _to_be_done_by_hand(self, article: RegisteredArticle, steps: Sequence[ColumnStep]) -> ConfigurationError:
        parts, title = ", ".join(it.in_words() for it in steps), self._database.capabilities.title
        return ConfigurationError(
            f"{self._where}: table {article.destination} is to be changed as the Publisher's was: {parts}; tranrepl "
            f"changes no tables of {title}",
            remedy="change the table by hand, then deliver again",
            article=str(article.source),
        )

    def require_procedures(self, old: RegisteredArticle, new: RegisteredArticle) -> None:
        """Raise CustomProcedureError where a procedure that is not ours to change does not take what comes."""
        for problem in self._procedures.problems(old, new) if self._procedures is not None else ():
            raise problem

    def change_columns(self, step: SchemaStep, article: RegisteredArticle, plan: ColumnPlan) -> None:
        """Change the table's columns. Rows that do not fit the new type of its key are deleted with all others where
        they may be; raises ConfigurationError where they may not."""
        statements = self._statements(article)
        if statements is None:
            return
        try:
            with self._recorded():
                statements.execute(plan.steps)
        except sa.exc.DBAPIError as error:
            problem = self._database.translate("the server says", error)
            if not self._rewrites_key(step, plan) or not isinstance(problem, DataError):
                raise
            if not self._unfit.may_go(article):
                key = [article.columns[at].name for at in article.key_positions]
                raise self._unfit.problem(self._where, article, key, problem.message) from error
            with self._recorded():
                self._session.execute(sa.delete(table_clause(self._database.place(article.destination))))
                statements.execute(plan.steps)
            self._said.append(
                f"{self._where}: rows of {article.destination} were deleted: they do not fit the new type of its "
                "primary key, and are copied again"
            )

    @staticmethod
    def _rewrites_key(step: SchemaStep, plan: ColumnPlan) -> bool:
        """Return whether a column keeps its rows in another type although the article's are copied again, as those of a
        key do."""
        return step.change.rows_unknown is not None and any(isinstance(it, RetypedColumn) for it in plan.steps)

    def complete_columns(self, article: RegisteredArticle, plan: ColumnPlan) -> None:
        """Do what may have to be done behind `change_columns`, and may be done twice."""
        statements = self._statements(article)
        if statements is not None:
            with self._recorded():
                statements.complete(plan.steps)

    def require_fitting_rows(self, step: SchemaStep) -> None:
        """Raise ConfigurationError where rows that may not be deleted do not fit the article's new primary key; before
        anything is changed."""
        change = key_change(step)
        if step.new is None or change is None or self._unfit.may_go(step.new):
            return
        statements = self._statements(step.old)
        if statements is None:
            return
        names = {it.ordinal: it.name for it in step.old.columns}
        there = {it.name for it in self.columns(step.old)}
        key = [step.new.columns[at] for at in step.new.key_positions]
        # A column that is there under such a name is another one, which the change renames or drops.
        others = set(names.values())
        added = {it.name: it for it in key if it.ordinal not in names and (it.name not in there or it.name in others)}
        columns = [names.get(it.ordinal, it.name) for it in key if it.name not in added]
        values = [AddedToKey(it.type_name, added_value(step.change, name)) for name, it in added.items()]
        changes = KeyChanges(self._session, self._database, step.old, statements)
        before = [step.old.columns[at].name for at in step.old.key_positions]
        if not changes.fits(columns, before, values):
            raise self._unfit.problem(self._where, step.new, change.now)

    def change_key(self, step: SchemaStep) -> list[str]:
        """Let the table's primary key follow the article's, once its columns are changed; return what was done. It may
        be done twice."""
        change = key_change(step)
        statements = None if step.new is None else self._statements(step.new)
        if step.new is None or change is None or statements is None:
            return []
        changes = KeyChanges(self._session, self._database, step.new, statements)
        if not self._unfit.may_go(step.new) and not changes.fits_changed(change):
            raise self._unfit.problem(self._where, step.new, change.now)
        with self._recorded():
            return [f"{self._where}: {it}" for it in changes.apply(change)]

    def has_procedures(self, article: RegisteredArticle) -> bool:
        """Return whether any procedure applies commands of the article."""
        return any(article.propagation(it).method is Method.PROCEDURE for it in PREFIXES)

    def follow(self, article: RegisteredArticle) -> list[str]:
        """Make the generated procedures of the article's definition."""
        if self._procedures is None:
            return []
        done = self._procedures.follow(self._target(article))
        self._said += [it if it.endswith(self._where) else f"{self._where}: {it}" for it in done]
        return done

    def _target(self, article: RegisteredArticle) -> SqlTarget:
        return target(self._session, self._database, article, self._where)

    def update_rows(self, article: RegisteredArticle, plan: ColumnPlan) -> None:
        at = self._target(article) if plan.updates else None
        for update in plan.updates:
            statement = None if at is None else _update_statement(at, update)
            if statement is not None:
                with self._recorded():
                    self._session.execute(statement)

    def remove_rows(self, step: SchemaStep, article: RegisteredArticle) -> None:
        """Delete the rows that went with partitions. Where it is not known which those are, the article has a snapshot
        that does without them."""
        removed = [it.rows for it in step.change.partitions if it.removes_rows and it.rows is not None]
        if not removed or why_rows_unknown(step.change, step.old) is not None:
            return
        at = self._target(article)
        for rows in removed:
            with self._recorded():
                self._session.execute(delete_rows(self._database, at, rows))


def _update_statement(at: SqlTarget, update: RowUpdate) -> sa.Update | None:
    """Return the statement; None of a column that is not published any more."""
    converts = next((it.conversion for it in at.columns if it.name == update.column), None)
    if converts is None:
        return None
    table = at.table()
    column = table.c[update.column]
    value = None if update.value is None else converts.convert(update.value)
    bound = sa.bindparam("tranrepl_value", value, converts.bind)
    return sa.update(table).values({column: bound, **at.kept(table, [update.column])})


_CHANGES_NOTHING = re.compile(r"\s*(SELECT|SHOW|PRAGMA|SET|WITH|SAVEPOINT|RELEASE)\b", re.IGNORECASE)
_BLANKS = re.compile(r"\s+")


@contextmanager
def _statements_run(session: sa.Connection) -> Iterator[list[str]]:
    """Yield the list of what the session runs within, but for what changes nothing; values behind a statement that
    takes some."""
    ran: list[str] = []

    def take_down(
        _connection: object, _cursor: object, statement: str, parameters: object, _context: object, _many: object
    ) -> None:
        if not _CHANGES_NOTHING.match(statement):
            ran.append(f"{_one_line(statement)} ({_values(parameters)})" if parameters else _one_line(statement))

    event.listen(session, "before_cursor_execute", take_down)
    try:
        yield ran
    finally:
        event.remove(session, "before_cursor_execute", take_down)


def _literal(value: object) -> str:
    """Return a value for people to read, nearly as SQL has it."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"0x{bytes(value).hex()}"
    if isinstance(value, int | float | Decimal):
        return str(value)
    return "'" + str(value).replace("'", "''") + "'"


def _values(parameters: object) -> str:
    values = parameters.values() if isinstance(parameters, Mapping) else parameters
    return ", ".join(map(_literal, values)) if isinstance(values, Iterable) else ""


def _one_line(statement: str) -> str:
    return _BLANKS.sub(" ", statement).strip().rstrip(";")
