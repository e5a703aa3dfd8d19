"""A PostgreSQL Subscriber, looked at and set up: one subscription's end in one database."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property

from tranrepl.errors import ConfigurationError, CustomProcedureError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.catalogue import TableDescription
from tranrepl.model.names import TableName, name_parts
from tranrepl.model.schema_change import SchemaChange
from tranrepl.model.table_definition import DefinedType
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.comparison_forms import select_rows_of_keys
from tranrepl.postgres.session import Session, answer_soon, translated_errors, version_problems
from tranrepl.settings.publication import Article
from tranrepl.settings.registration import PublishedTables
from tranrepl.subscriber.base.generated_procedures import GeneratedProcedure
from tranrepl.subscriber.base.subscriber import Subscriber
from tranrepl.subscriber.comparison import Values
from tranrepl.subscriber.postgres.core import core
from tranrepl.subscriber.postgres.database import POSTGRES, make_durable
from tranrepl.subscriber.postgres.destination import (
    find_targets,
    intended_target,
)
from tranrepl.subscriber.postgres.partition_changes import why_rows_unknown
from tranrepl.subscriber.postgres.partition_setup import missing_partitions
from tranrepl.subscriber.postgres.procedure_setup import accepts_call, made_procedures
from tranrepl.subscriber.postgres.procedures import custom_procedures, generated_procedures
from tranrepl.subscriber.postgres.rights import (
    LET_OWNER,
    lets_procedures_follow,
    not_owned,
    right_problems,
    type_problems,
)
from tranrepl.subscriber.postgres.sequences import PostgresSequences
from tranrepl.subscriber.postgres.table_setup import (
    complete_destination,
    create_destination,
    defined_columns,
    missing_types,
    way_on,
)
from tranrepl.subscriber.postgres.users_code import unguarded_code, writers_of_own_path
from tranrepl.subscriber.procedure_names import PREFIXES, Scripted, generates
from tranrepl.subscriber.replication_tables import TablesVersion
from tranrepl.subscriber.subscription import SubscriptionKey


class PostgresSubscriber(Subscriber):
    """Over a session of psycopg."""

    def __init__(self, session: Session, key: SubscriptionKey) -> None:
        super().__init__(core(session), POSTGRES, key)
        self.driver = session
        self._types: set[str] = set()
        """Those that were found there."""

    # Checks

    def _creation_problems(self, article: Article, source: TableDescription) -> Iterator[ConfigurationError]:
        """Yield types that a table made by `tranrepl setup` would need, and that are missing or run the code of others.
        Setup creates enumerated ones."""
        at = f"article {article.source}: {self.where}"
        defined = defined_columns(article, source)
        with translated_errors(self.where):
            missing = missing_types(self.driver, defined)
            for it in missing:
                if it.labels is None:
                    # Without the article: the type of several is one problem.
                    yield ConfigurationError(
                        f"{self.where} has no type {it.name}",
                        remedy=f"{way_on(self.driver, it, source.type_statements.get(it.oid))}; then "
                        "`tranrepl setup FILE`. Or leave its columns out of the article",
                    )
        made = {it.name for it in defined if any(type_ in missing for type_ in it.types or ())}
        for column in source.published(article.columns):
            if not self._has_type(column.type_name) and column.name not in made:
                yield ConfigurationError(
                    f"{at}: column {column.name!r}: type {column.type_name} does not exist",
                    remedy="create the type there as it is at the Publisher, or leave the column out of the article",
                )
            with translated_errors(self.where):
                yield from type_problems(self.driver, at, column.name, column.type_name)

    def _has_type(self, name: str) -> bool:
        if name not in self._types:
            with translated_errors(self.where):
                found = self.driver.execute("SELECT to_regtype(%s)", [name]).fetchone()
            if found == (None,):
                return False
            self._types.add(name)
        return True

    @cached_property
    def _writers(self) -> Sequence[tuple[str, str]]:
        return writers_of_own_path(self.driver)

    def article_warnings(self, article: Article, source: TableDescription) -> Iterator[str]:
        at = f"article {article.source}: {self.where}: table {article.destination_table}"
        for it in missing_partitions(self.driver, article, source):
            made = it.statement.as_string(self.driver)
            yield f"{at} has no partition {it.there}: `tranrepl setup FILE` makes it, by {made}"
        yield from super().article_warnings(article, source)
        with translated_errors(self.where):
            yield from unguarded_code(self.driver, self.where, article, self._writers)

    def right_problems(self, tables: PublishedTables) -> Iterator[ConfigurationError]:
        yield from version_problems(self.driver, self.where)
        with translated_errors(self.where):
            schemas = self._schemas_of_types(tables)
        yield from right_problems(self.driver, self.where, [article for article, _ in tables], schemas)

    def _schemas_of_types(self, tables: PublishedTables) -> list[str]:
        """Return the schemas of enumerated types that setup creates for tables which it creates."""
        made: list[DefinedType] = []
        for article, source in tables:
            columns = [it for it in defined_columns(article, source) if any(of.labels for of in it.types or ())]
            if columns and not self.has_destination(article.destination_table):
                made += [it for it in missing_types(self.driver, columns) if it.labels is not None]
        return list(dict.fromkeys(name_parts(it.name)[0] for it in made))

    def schema_change_warnings(self, articles: Sequence[Article]) -> Iterator[str]:
        with translated_errors(self.where):
            problems = list(not_owned(self.driver, self.where, [it.destination_table for it in articles]))
            calls = any(generates(article.propagation(it)) for article in articles for it in PREFIXES)
            statements = lets_procedures_follow(self.driver) if calls else []
        yield from (f"{it.message}; {it.report.remedy}" for it in problems)
        if statements:
            yield (
                f"{self.where}: our role may not replace generated procedures, which the Publisher's schema changes "
                f"need; {LET_OWNER} {' '.join(f'{it};' for it in statements)}"
            )

    def custom_problems(self, article: RegisteredArticle, source: TableDescription) -> Iterator[CustomProcedureError]:
        if not any(article.propagation(it).procedure for it in PREFIXES):
            return
        for custom in custom_procedures(intended_target(self.driver, self.where, article, source)):
            if not accepts_call(self.driver, custom):
                yield CustomProcedureError(
                    f"article {article.source}: {self.where}: there is no procedure that takes the call of "
                    f"{custom.identifier.as_string(None)}",
                    remedy=f"declare it as PROCEDURE {custom.signature().as_string(None)}; "
                    "`tranrepl script FILE --custom` prints a skeleton",
                    article=str(article.source),
                )

    # Setup

    def tables_version(self) -> TablesVersion | None:
        """Return which version made the model's tables; whose they are is asked where setup makes them."""
        return self._version()

    def lacking_partitions(self, article: Article, source: TableDescription) -> Mapping[TableName, TableName]:
        with translated_errors(self.where):
            return {it.partition: it.there for it in missing_partitions(self.driver, article, source)}

    def set_up_destination(
        self, article: Article, source: TableDescription, referencing: Collection[str] = ()
    ) -> list[str]:
        # A column has the same type with and without a foreign key.
        del referencing
        if self.has_destination(article.destination_table):
            return complete_destination(self.driver, self.where, article, source)
        self._known.forget(article.destination_table)
        return create_destination(self.driver, self.where, self._snapshots, article, source)

    def make_durable(self) -> None:
        with translated_errors(self.where), self.driver.transaction():
            make_durable(self.driver)

    def _generated(self, articles: Sequence[RegisteredArticle]) -> list[GeneratedProcedure]:
        return [it for at in find_targets(self.driver, self.where, articles) for it in made_procedures(at)]

    def scripts(self, article: RegisteredArticle, source: TableDescription, what: Scripted) -> list[str]:
        target = intended_target(self.driver, self.where, article, source)
        procedures = custom_procedures(target) if what is Scripted.CUSTOM else generated_procedures(target)
        return [it.create().as_string(self.driver) for it in procedures]

    # Deliveries

    @property
    def sequences(self) -> PostgresSequences:
        return PostgresSequences(self.driver, self.key, self.where)

    def rows_of_key(self, article: RegisteredArticle, key: Sequence[str | None]) -> list[Values]:
        (target,) = find_targets(self.driver, self.where, [article])
        query = select_rows_of_keys(qualified(article.destination), target.columns, article.key_positions, [key])
        with translated_errors(self.where), self.driver.transaction():
            answer_soon(self.driver)
            return [list(row) for row in self.driver.execute(query).fetchall()]

    def find_durable_watermark(self) -> bytes | None:
        found = self.find_watermark()
        self.make_durable()
        return found

    def reload_reason(self, change: SchemaChange, old: RegisteredArticle) -> str | None:
        """Return why it is not known which rows went with a partition: otherwise the same ALTER TABLE gives the same
        rows."""
        return why_rows_unknown(change, old)
