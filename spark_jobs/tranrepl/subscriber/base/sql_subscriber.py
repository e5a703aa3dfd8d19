"""A Subscriber that SQLAlchemy connects to: checked and set up."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import sqlalchemy as sa
from sqlalchemy.schema import CreateSchema
from sqlalchemy.sql import quoted_name

from tranrepl.errors import ConfigurationError, CustomProcedureError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.call_syntax import arguments
from tranrepl.model.catalogue import ColumnDescription, TableDescription
from tranrepl.model.names import TableName
from tranrepl.model.schema_change import SchemaChange
from tranrepl.model.source_types import is_unbounded
from tranrepl.settings.publication import Article
from tranrepl.settings.registration import PublishedTables
from tranrepl.subscriber.base.catalogue import Destination
from tranrepl.subscriber.base.column_changes import reload_reason
from tranrepl.subscriber.base.column_check import column_problems, column_warnings
from tranrepl.subscriber.base.constraints import constraints_of
from tranrepl.subscriber.base.database import SqlDatabase
from tranrepl.subscriber.base.destination import (
    NOTHING_KNOWN,
    find_destination,
    intended_target,
    new_table,
    read_known,
    size_problems,
    targets,
)
from tranrepl.subscriber.base.generated_procedures import GeneratedProcedure
from tranrepl.subscriber.base.model_database import execute_ddl
from tranrepl.subscriber.base.partition_rows import why_rows_unknown
from tranrepl.subscriber.base.procedure_setup import custom_problem, made_procedures, unseen_texts
from tranrepl.subscriber.base.procedures import (
    ProcedureName,
    ProcedureScripter,
    StoredProcedure,
    called_name,
    custom_names,
    custom_operations,
    scripted,
)
from tranrepl.subscriber.base.subscriber import Subscriber
from tranrepl.subscriber.base.target import SqlTarget
from tranrepl.subscriber.constraints import Constraints
from tranrepl.subscriber.missing_columns import as_registered
from tranrepl.subscriber.procedure_names import Scripted
from tranrepl.subscriber.replication_tables import MODEL_TABLES
from tranrepl.subscriber.row_filter_translation import translated_filter
from tranrepl.subscriber.subscription import SubscriptionKey
from tranrepl.subscriber.tables_version import TablesVersion


class SqlSubscriber(Subscriber):
    """One subscription's end in one database."""

    def __init__(self, session: sa.Connection, database: SqlDatabase, key: SubscriptionKey) -> None:
        super().__init__(session, database, key)
        self._session = session
        self._database = database
        self._known = NOTHING_KNOWN
        self._schemas: set[str] = set()

    # Checks

    def article_problems(
        self, article: Article, source: TableDescription, known: RegisteredArticle | None = None
    ) -> Iterator[ConfigurationError]:
        columns = source.published(article.columns)
        yield from self._procedure_problems(article, source)
        if article.filter is not None:
            translated_filter(article.filter, self._database.sql_name, str(article.source))
        found = self._spelled_destination(article, columns)
        if found is None:
            yield from size_problems(self._database, self.where, article, source)
        else:
            if found.refusal is not None:
                at = f"article {article.source}: {self.where}"
                yield found.refusal.error(at, article.destination_table, article.source)
            delivered = as_registered(known, source)
            for column in columns:
                yield from column_problems(self._key, article, delivered, self._database, found, column)

    def right_problems(self, tables: PublishedTables) -> Iterator[ConfigurationError]:
        with self._transaction():
            yield from self._database.right_problems(self._session, self.where, tables, MODEL_TABLES)

    def article_warnings(self, article: Article, source: TableDescription) -> Iterator[str]:
        columns = source.published(article.columns)
        found = self._spelled_destination(article, columns)
        at = f"article {article.source}: {self.where}"
        if found is not None:
            in_table = f"{at}: table {article.destination_table}"
            for column in columns:
                yield from column_warnings(in_table, self._database, self._session.dialect, found, column)

        scripter = self._database.scripter
        if scripter is not None:
            names = custom_names([article], scripter.names)
            with self._transaction():
                grant = self._database.grant_of_texts(self._session) if names else None
            yield from unseen_texts(at, {it.name: self._find_procedure(scripter, it) for it in names}, grant)

    def _spelled_destination(self, article: Article, published: Sequence[ColumnDescription]) -> Destination | None:
        found = self._find_destination(article.destination_table)
        return None if found is None else found.spelled_as([column.name for column in published])

    def _find_destination(self, name: TableName) -> Destination | None:
        if name in self._known.tables:
            return self._known.tables[name]
        with self._transaction():
            return find_destination(self._session, self._database, name)

    def warnings(self, tables: PublishedTables) -> Iterator[str]:
        large = [str(it.source) for it, table in tables if any(map(is_unbounded, table.published(it.columns)))]
        with self._transaction():
            yield from (f"{self.where}: {it}" for it in self._database.packet_warnings(self._session, large))
            yield from (f"{self.where}: {it}" for it in self._database.bulk_warnings(self._session, tables))

    def custom_problems(self, article: RegisteredArticle, source: TableDescription) -> Iterator[CustomProcedureError]:
        del source
        scripter = self._database.scripter
        if scripter is None:
            return
        for operation in custom_operations(article):
            name = called_name(article.propagation(operation), operation, article.destination, scripter.names)
            problem = custom_problem(self._find_procedure(scripter, name), arguments(article, operation))
            if problem is not None:
                yield CustomProcedureError(
                    f"article {article.source}: {self.where}: procedure {name.name} {problem}",
                    remedy="`tranrepl script FILE --custom` prints a skeleton",
                    article=str(article.source),
                )

    def _find_procedure(self, scripter: ProcedureScripter, name: ProcedureName) -> StoredProcedure | None:
        if name in self._known.procedures:
            return self._known.procedures[name]
        with self._transaction():
            return scripter.stored(self._session, [name]).get(name)

    @contextmanager
    def reading_together(self, tables: PublishedTables) -> Iterator[None]:
        with self._transaction():
            self._known = read_known(self._session, self._database, [article for article, _ in tables])
        try:
            yield
        finally:
            self._known = NOTHING_KNOWN

    # Setup

    def tables_version(self) -> TablesVersion | None:
        """Return which version made the model's tables; None where they are not there. Raises ConfigurationError where
        one of them may not take rows."""
        with self._transaction():
            self._database.require_fit_tables(self._session, self.where, MODEL_TABLES)
        return super().tables_version()

    def set_up_tables(self) -> None:
        super().set_up_tables()
        scripter = self._database.scripter
        with self._transaction():
            for shared in scripter.shared() if scripter else ():
                if scripter is not None and not scripter.stored(self._session, [shared.name]):
                    execute_ddl(self._session, shared.create)

    def has_destination(self, table: TableName) -> bool:
        return self._find_destination(table) is not None

    def set_up_destination(
        self, article: Article, source: TableDescription, referencing: Collection[str] = ()
    ) -> list[str]:
        name = article.destination_table
        if self._find_destination(name) is not None:
            return []
        self._known = self._known.without(name)
        with self._transaction():
            schema, _ = self._database.place(name)
            if schema is not None:
                self._set_up_schema(schema)
            new_table(self._database, article, source, referencing).create(self._session, checkfirst=False)
        return [f"created table {name} at {self.where}"]

    def _set_up_schema(self, name: str) -> None:
        if name in self._schemas:
            return
        if not self._database.has_schema(self._session, name):
            self._session.execute(CreateSchema(quoted_name(name, quote=True)))
        self._schemas.add(name)

    def _generated(self, articles: Sequence[RegisteredArticle]) -> list[GeneratedProcedure]:
        scripter = self._database.scripter
        if scripter is None:
            return []
        found = targets(self._session, self._database, articles, self.where)
        return [it for target in found for it in made_procedures(scripter, target)]

    def scripts(self, article: RegisteredArticle, source: TableDescription, what: Scripted) -> list[str]:
        scripter = self._database.scripter
        if scripter is None:
            return []
        return scripted(scripter, self._intended_target(article, source), what)

    def _intended_target(self, article: RegisteredArticle, source: TableDescription) -> SqlTarget:
        found = self._find_destination(article.destination)
        return intended_target(self._database, article, source, self._session.dialect, found)

    # Deliveries

    def constraints(self, articles: Sequence[RegisteredArticle]) -> Constraints:
        with self._transaction():
            found = targets(self._session, self._database, articles, self.where)
            return constraints_of(self._session, self._database, found)

    def reload_reason(self, change: SchemaChange, old: RegisteredArticle) -> str | None:
        return reload_reason(change, old) or why_rows_unknown(change, old)
