"""A Subscriber that SQLAlchemy connects to: checked and set up."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

import sqlalchemy as sa
from sqlalchemy.schema import CreateSchema
from sqlalchemy.sql import quoted_name

from tranrepl.errors import ConfigurationError, CustomProcedureError, DataError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.call_syntax import argument_count, arguments
from tranrepl.model.catalogue import ColumnDescription, TableDescription
from tranrepl.model.commands import Method, Operation
from tranrepl.model.names import TableName
from tranrepl.model.schema_change import SchemaChange
from tranrepl.model.source_types import is_unbounded
from tranrepl.settings.publication import Article, Subscription
from tranrepl.settings.registration import PublishedTables
from tranrepl.subscriber.base.catalogue import Destination
from tranrepl.subscriber.base.column_changes import reload_reason
from tranrepl.subscriber.base.column_check import column_problems, column_warnings
from tranrepl.subscriber.base.constraints import (
    constraints_of,
    foreign_key_problems,
    not_for_replication_problems,
)
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
from tranrepl.subscriber.base.model_database import execute_ddl
from tranrepl.subscriber.base.partition_rows import why_rows_unknown
from tranrepl.subscriber.base.procedure_setup import ProcedureSetup, custom_problem, unseen_texts
from tranrepl.subscriber.base.procedures import (
    ProcedureName,
    ProcedureScripter,
    StoredProcedure,
    called_name,
    custom_names,
    custom_operations,
    scripted,
)
from tranrepl.subscriber.base.subscriber import ModelSubscriber
from tranrepl.subscriber.base.target import SqlTarget
from tranrepl.subscriber.constraints import Constraints
from tranrepl.subscriber.foreign_keys import ForeignKey
from tranrepl.subscriber.missing_columns import as_registered
from tranrepl.subscriber.procedure_names import PREFIXES
from tranrepl.subscriber.replication_tables import MODEL_TABLES
from tranrepl.subscriber.row_filter_translation import translated_filter
from tranrepl.subscriber.subscriber import Scripted
from tranrepl.subscriber.subscription import SubscriptionKey
from tranrepl.subscriber.tables_version import TablesVersion

_OPTIONS = {Operation.INSERT: "ins_cmd", Operation.UPDATE: "upd_cmd", Operation.DELETE: "del_cmd"}


class SqlSubscriber(ModelSubscriber):
    """One subscription's end in one database."""

    def __init__(self, session: sa.Connection, database: SqlDatabase, key: SubscriptionKey) -> None:
        super().__init__(session, database, key)
        self._session = session
        self._database = database
        self._known = NOTHING_KNOWN
        self._schemas: set[str] = set()

    # Checks

    def subscription_problems(self, subscription: Subscription) -> Iterator[ConfigurationError]:
        """Yield what keeps this Subscriber from delivering as the subscription asks, each with its remedy."""
        if subscription.not_for_replication:
            yield from not_for_replication_problems(self._database.capabilities, self.where)
        if subscription.foreign_keys:
            yield from foreign_key_problems(self._database.capabilities, self.where, subscription)

    def article_problems(
        self, article: Article, source: TableDescription, known: RegisteredArticle | None = None
    ) -> Iterator[ConfigurationError]:
        columns = source.published(article.columns)
        for operation in PREFIXES:
            yield from self._procedure_problems(article, operation, len(columns), len(source.key))
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
        """Yield what our login lacks of the rights that setup and deliveries need, with the grants."""
        with self._transaction():
            yield from self._database.right_problems(self._session, self.where, tables, MODEL_TABLES)

    def article_warnings(self, article: Article, source: TableDescription) -> Iterator[str]:
        """Yield what of an article without problems may not fit into the table that is there."""
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

    def _procedure_problems(
        self, article: Article, operation: Operation, columns: int, key: int
    ) -> Iterator[ConfigurationError]:
        propagation, able = article.propagation(operation), self._database.capabilities
        option = _OPTIONS[operation]
        if propagation.method is not Method.PROCEDURE:
            return
        if not able.procedures:
            yield ConfigurationError(
                f"article {article.source}: {option}: {propagation} asks for a procedure, but {self.where} "
                f"({able.title}) takes statements only",
                remedy=f"allowed there: {option}: SQL, or NONE",
            )
            return
        count = argument_count(propagation, operation, columns, range(key))
        if able.most_arguments is not None and count > able.most_arguments:
            yield ConfigurationError(
                f"article {article.source}: {option}: the procedure would take {count} arguments, "
                f"a {able.title} procedure takes {able.most_arguments}",
                remedy=f"{option}: SQL, or fewer columns",
            )

    def schema_change_warnings(self, articles: Sequence[Article]) -> Iterator[str]:
        del articles
        yield from ()

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
        """Create the model's tables, and procedures that all articles share. Idempotent.

        Raises ConfigurationError where a newer version made the tables.
        """
        super().set_up_tables()
        scripter = self._database.scripter
        with self._transaction():
            for shared in scripter.shared() if scripter else ():
                if scripter is not None and not scripter.stored(self._session, [shared.name]):
                    execute_ddl(self._session, shared.create)

    def has_destination(self, table: TableName) -> bool:
        return self._find_destination(table) is not None

    def lacking_partitions(self, article: Article, source: TableDescription) -> Mapping[TableName, TableName]:
        """Return none: a destination is one table."""
        del article, source
        return {}

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

    def set_up_foreign_key(self, key: ForeignKey, *, new: bool) -> list[str]:
        """Create a foreign key without cascades: the Publisher's come as commands."""
        with self._transaction():
            if key.is_among(self._database.foreign_keys(self._session, key.table)):
                return []
        statement = self._create_foreign_key(key)
        if not new:
            return [key.left_out(f"the table was there before; add it by {statement}")]
        try:
            with self._transaction():
                execute_ddl(self._session, statement)
        except (DataError, ConfigurationError) as error:
            return [key.left_out(error.message)]
        return [f"created foreign key {key.name} of table {key.table} at {self.where}"]

    def _create_foreign_key(self, key: ForeignKey) -> str:
        """Return the statement that creates a foreign key under a name of the database's own: two tables of a schema
        may not have keys of one name, as the Publisher's may."""
        table, referenced = self._database.qualified(key.table), self._database.qualified(key.referenced)
        quoted = self._database.identifiers.quoted
        columns, others = (", ".join(map(quoted, it)) for it in (key.columns, key.referenced_columns))
        return f"ALTER TABLE {table} ADD FOREIGN KEY ({columns}) REFERENCES {referenced} ({others})"

    def set_up_procedures(self, articles: Sequence[RegisteredArticle]) -> list[str]:
        """Create or regenerate the generated procedures; one edited by hand is left alone, and said so."""
        scripter = self._database.scripter
        if scripter is None:
            return []
        with self._transaction():
            found = targets(self._session, self._database, articles, self.where)
            return ProcedureSetup(self._session, self._database, scripter, self._key, self.where).set_up(found)

    def scripts(self, article: RegisteredArticle, source: TableDescription, what: Scripted) -> list[str]:
        """Return `CREATE PROCEDURE` statements, as they fit the table that is there, or that setup would create."""
        scripter = self._database.scripter
        if scripter is None:
            return []
        return scripted(scripter, self._intended_target(article, source), what)

    def _intended_target(self, article: RegisteredArticle, source: TableDescription) -> SqlTarget:
        found = self._find_destination(article.destination)
        return intended_target(self._database, article, source, self._session.dialect, found)

    # Deliveries

    @property
    def sequences(self) -> None:
        return None

    def constraints(self, articles: Sequence[RegisteredArticle]) -> Constraints:
        with self._transaction():
            found = targets(self._session, self._database, articles, self.where)
            return constraints_of(self._session, self._database, found)

    def reload_reason(self, change: SchemaChange, old: RegisteredArticle) -> str | None:
        return reload_reason(change, old) or why_rows_unknown(change, old)
