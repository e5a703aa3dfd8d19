"""One subscription's end in one database, looked at and set up."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

import sqlalchemy as sa
from sqlalchemy.schema import CreateSchema
from sqlalchemy.sql import quoted_name

from tranrepl.errors import ConfigurationError, CustomProcedureError, DataError, TransientError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.call_syntax import argument_count, arguments
from tranrepl.model.catalogue import ColumnDescription, TableDescription
from tranrepl.model.commands import Method, Operation
from tranrepl.model.names import TableName
from tranrepl.model.schema_change import SchemaChange
from tranrepl.model.source_types import is_unbounded
from tranrepl.printable import named
from tranrepl.settings.publication import Article, Subscription
from tranrepl.settings.registration import PublishedTables
from tranrepl.subscriber.base.catalogue import Destination
from tranrepl.subscriber.base.column_changes import reload_reason
from tranrepl.subscriber.base.column_check import column_problems, column_warnings
from tranrepl.subscriber.base.database import SqlDatabase
from tranrepl.subscriber.base.definitions import Definitions
from tranrepl.subscriber.base.destination import (
    KnownObjects,
    constraints_of,
    find_destination,
    intended_target,
    new_table,
    read_known,
    size_problems,
    targets,
)
from tranrepl.subscriber.base.execution import execute_ddl
from tranrepl.subscriber.base.generated_procedures import (
    GeneratedProcedure,
    GeneratedProcedures,
    custom_problem,
    made_procedures,
    unseen_texts,
)
from tranrepl.subscriber.base.partition_rows import why_rows_unknown
from tranrepl.subscriber.base.procedures import (
    ProcedureName,
    ProcedureScripter,
    StoredProcedure,
    called_name,
    custom_names,
    custom_operations,
    scripted,
)
from tranrepl.subscriber.base.replication_tables import create_tables, find_version
from tranrepl.subscriber.base.snapshot_rows import SnapshotRows
from tranrepl.subscriber.base.sql_comparison import rows_of_key
from tranrepl.subscriber.base.target import SqlTarget
from tranrepl.subscriber.base.watermark import Watermark, position_of
from tranrepl.subscriber.capabilities import ForeignKeyCheck
from tranrepl.subscriber.comparison import Values
from tranrepl.subscriber.constraints import Constraints
from tranrepl.subscriber.foreign_keys import ForeignKey
from tranrepl.subscriber.missing_columns import as_registered
from tranrepl.subscriber.procedure_names import PREFIXES, Scripted
from tranrepl.subscriber.replication_tables import ARTICLES, REPLICATION_TABLES, TablesVersion
from tranrepl.subscriber.row_filter_translation import translated_filter
from tranrepl.subscriber.sequences import SubscriberSequences
from tranrepl.subscriber.shared_tables import Claim
from tranrepl.subscriber.subscription import SubscriptionKey, SubscriptionPosition, fenced, not_set_up

_LOCK_SECONDS = 300
_OPTIONS = {Operation.INSERT: "ins_cmd", Operation.UPDATE: "upd_cmd", Operation.DELETE: "del_cmd"}


class Subscriber:
    """What jobs and setup ask of it. Its errors are of `tranrepl.errors`."""

    def __init__(self, session: sa.Connection, database: SqlDatabase, key: SubscriptionKey) -> None:
        self.where = f"Subscriber {key.subscription}"
        """The Subscriber as messages name it: "Subscriber reporting"."""
        self.session = session
        self.database = database
        self.key = key
        self._watermark = Watermark(session, database, key, self.where)
        self._definitions = Definitions(session, key)
        self._snapshots = SnapshotRows(session, database, key)
        self._known = KnownObjects()
        self._schemas: set[str] = set()

    def _transaction(self) -> AbstractContextManager[None]:
        return self.database.transaction(self.session, self.where)

    def _reading(self) -> AbstractContextManager[None]:
        return self.database.reading(self.session, self.where)

    # Checks

    def subscription_problems(self, subscription: Subscription) -> Iterator[ConfigurationError]:
        """Yield what keeps this Subscriber from delivering as the subscription asks, each with its remedy."""
        if subscription.not_for_replication:
            yield from self.database.not_for_replication_problems(self.session, self.where)
        if subscription.foreign_keys:
            yield from self._foreign_key_problems(subscription)

    def _foreign_key_problems(self, subscription: Subscription) -> Iterator[ConfigurationError]:
        """Yield why setup cannot create foreign keys there, or why they would stop a delivery."""
        able = self.database.capabilities
        at_once = (
            f"{able.title} checks a foreign key at once, and a parent's DELETE comes before those of the children that "
            "it cascaded to"
        )
        match able.foreign_keys:
            case ForeignKeyCheck.NONE:
                yield ConfigurationError(
                    f"{self.where}: foreign_keys: setup creates no foreign keys in {able.title}",
                    remedy="foreign_keys: false",
                )
            case ForeignKeyCheck.AT_ONCE if not able.not_for_replication:
                yield ConfigurationError(
                    f"{self.where}: foreign_keys: {at_once}; {able.why_for_replication}", remedy="foreign_keys: false"
                )
            case ForeignKeyCheck.AT_ONCE if not subscription.not_for_replication:
                yield ConfigurationError(
                    f"{self.where}: foreign_keys: {at_once}",
                    remedy="not_for_replication: true for this subscription, or foreign_keys: false",
                )

    @contextmanager
    def reading_together(self, tables: PublishedTables) -> Iterator[None]:
        """Ask the catalogue about all articles at once; within the context, about none that stays as it is again."""
        with self._transaction():
            self._known = read_known(self.session, self.database, [article for article, _ in tables])
        try:
            yield
        finally:
            self._known = KnownObjects()

    def article_problems(
        self, article: Article, source: TableDescription, known: RegisteredArticle | None = None
    ) -> Iterator[ConfigurationError]:
        """Yield what keeps this Subscriber from taking the article, each with its remedy. `known` is the article as it
        is delivered; None where nothing is."""
        columns = source.published(article.columns)
        yield from self._procedure_problems(article, source)
        if article.filter is not None and not self.database.reads_publishers_filters:
            translated_filter(article.filter, self.database.sql_name, str(article.source))
        found = self._spelled_destination(article, columns)
        if found is None:
            yield from self._creation_problems(article, source)
        else:
            if found.refusal is not None:
                at = f"article {article.source}: {self.where}"
                yield found.refusal.error(at, article.destination_table, article.source)
            delivered = as_registered(known, source)
            for column in columns:
                yield from column_problems(self.key, article, delivered, self.database, found, column)

    def _creation_problems(self, article: Article, source: TableDescription) -> Iterator[ConfigurationError]:
        """Yield what keeps setup from creating the article's table."""
        yield from size_problems(self.database, self.where, article, source)

    def _procedure_problems(self, article: Article, source: TableDescription) -> Iterator[ConfigurationError]:
        """Yield procedures that the database cannot have."""
        able, columns = self.database.capabilities, source.published(article.columns)
        for operation in PREFIXES:
            propagation, option = article.propagation(operation), _OPTIONS[operation]
            if propagation.method is not Method.PROCEDURE:
                continue
            count = argument_count(propagation, operation, len(columns), range(len(source.key)))
            if able.most_arguments is not None and count > able.most_arguments:
                yield ConfigurationError(
                    f"article {article.source}: {option}: the procedure would take {count} arguments, "
                    f"a {able.title} procedure takes {able.most_arguments}",
                    remedy=f"{option}: SQL, or fewer columns",
                )

    def right_problems(self, tables: PublishedTables) -> Iterator[ConfigurationError]:
        """Yield what our role lacks of the rights that setup and deliveries need, with the statements that grant it."""
        with self._transaction():
            yield from self.database.right_problems(self.session, self.where, tables, REPLICATION_TABLES)

    def article_warnings(self, article: Article, source: TableDescription) -> Iterator[str]:
        """Yield what of an article without problems may not fit into the table that is there."""
        columns = source.published(article.columns)
        found = self._spelled_destination(article, columns)
        at = f"article {article.source}: {self.where}"
        if found is not None:
            in_table = f"{at}: table {article.destination_table}"
            for column in columns:
                yield from column_warnings(in_table, self.database, self.session.dialect, found, column)

        scripter = self.database.scripter
        if scripter is not None:
            names = custom_names([article], scripter.names)
            with self._transaction():
                grant = self.database.grant_of_texts(self.session) if names else None
            yield from unseen_texts(at, {it.name: self._find_procedure(scripter, it) for it in names}, grant)

    def _spelled_destination(self, article: Article, published: Sequence[ColumnDescription]) -> Destination | None:
        found = self._find_destination(article.destination_table)
        return None if found is None else found.spelled_as([column.name for column in published])

    def _find_destination(self, name: TableName) -> Destination | None:
        if name in self._known.tables:
            return self._known.tables[name]
        with self._transaction():
            return find_destination(self.session, self.database, name)

    def warnings(self, tables: PublishedTables) -> Iterator[str]:
        """Yield what is allowed, but may stop a delivery one day."""
        apart = [f"{it.source} ({', '.join(names)})" for it, table in tables if (names := self._kept_apart(it, table))]
        if apart:
            yield (
                f"{self.where}: keys that ignore case or accents at the Publisher, and not here: {', '.join(apart)}. A "
                "foreign key that refers to 'a' as 'A' holds there and fails here. Give these columns a _bin collation "
                "at the Publisher, or columns that you make here a type or collation that ignores case"
            )
        large = [str(it.source) for it, table in tables if any(map(is_unbounded, table.published(it.columns)))]
        with self._transaction():
            yield from (f"{self.where}: {it}" for it in self.database.packet_warnings(self.session, large))
            yield from (f"{self.where}: {it}" for it in self.database.bulk_warnings(self.session, tables))

    def _kept_apart(self, article: Article, source: TableDescription) -> list[str]:
        """Return the columns of the key whose texts are equal at the Publisher, and not here, where they differ in
        case."""
        names = [it.name for it in source.key if it.ignores_case]
        found = self._spelled_destination(article, source.published(article.columns)) if names else None
        there = {} if found is None else found.columns
        return [it for it in names if it not in there or self.database.key_warning(there[it]["type"]) is None]

    def schema_change_warnings(self, articles: Sequence[Article]) -> Iterator[str]:
        """Yield what keeps our role from altering tables that are there, as the Publisher's schema changes need it."""
        del articles
        yield from ()

    def custom_problems(self, article: RegisteredArticle, source: TableDescription) -> Iterator[CustomProcedureError]:
        """Yield custom procedures that are missing or declared otherwise than they are called."""
        del source
        scripter = self.database.scripter
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
            return scripter.stored(self.session, [name]).get(name)

    # Setup

    def tables_version(self) -> TablesVersion | None:
        """Return which version made the model's tables; None where they are not there. Raises ConfigurationError where
        one of them may not take rows."""
        with self._transaction():
            self.database.require_fit_tables(self.session, self.where, REPLICATION_TABLES)
        return self._version()

    def _version(self) -> TablesVersion | None:
        with self._reading():
            return find_version(self.session, self.database)

    def set_up_tables(self) -> TablesVersion | None:
        """Create the model's tables, and procedures that all articles share; return which version had made the tables,
        None where there were none. Idempotent. Raises ConfigurationError where a newer version made the tables."""
        with self._transaction():
            self.database.require_fit_tables(self.session, self.where, REPLICATION_TABLES)
            found = create_tables(self.session, self.database, self.where)
        scripter = self.database.scripter
        if scripter is not None:
            with self._transaction():
                for shared in scripter.shared():
                    if not scripter.stored(self.session, [shared.name]):
                        execute_ddl(self.session, shared.create)
        return found

    def has_destination(self, table: TableName) -> bool:
        return self._find_destination(table) is not None

    def lacking_partitions(self, article: Article, source: TableDescription) -> Mapping[TableName, TableName]:
        """Return the Publisher's partitions that setup would make here, each with the name it would give it."""
        del article, source
        return {}

    def set_up_destination(
        self, article: Article, source: TableDescription, referencing: Collection[str] = ()
    ) -> list[str]:
        """Create the destination table where it is missing; return what else was done. `referencing`: columns that a
        foreign key is to have."""
        name = article.destination_table
        if self._find_destination(name) is not None:
            return []
        self._known.forget(name)
        with self._transaction():
            schema, _ = self.database.place(name)
            if schema is not None:
                self._set_up_schema(schema)
            new_table(self.database, article, source, referencing).create(self.session, checkfirst=False)
            self._snapshots.add_created(str(article.source))
        return []

    def make_durable(self) -> None:
        """Let what was committed survive a crash of the server. Of most databases, every commit does."""

    def _set_up_schema(self, name: str) -> None:
        if name in self._schemas:
            return
        if not self.database.has_schema(self.session, name):
            self.session.execute(CreateSchema(quoted_name(name, quote=True)))
        self._schemas.add(name)

    def set_up_foreign_keys(self, keys: Sequence[ForeignKey], new: Collection[TableName]) -> list[str]:
        """Create foreign keys of tables that this setup made (`new`); of others, say that they are missing. They have
        no cascades: the Publisher's come as commands."""
        made: list[str] = []
        left_out: list[str] = []
        for key in keys:
            with self._transaction():
                if self._has_foreign_key(key):
                    continue
            statement = self.database.add_foreign_key_text(key)
            if key.table not in new:
                left_out.append(key.left_out(f"the table was there before; add it by {statement}"))
                continue
            try:
                with self._transaction():
                    execute_ddl(self.session, statement)
            except (DataError, ConfigurationError) as error:
                left_out.append(key.left_out(error.message))
            else:
                made.append(f"{key.name} of table {key.table}")
        return [*left_out, *([f"created {named(made, 'foreign key')} at {self.where}"] if made else [])]

    def _has_foreign_key(self, key: ForeignKey) -> bool:
        """Return whether the table has it already, under whatever name."""
        place, referenced = map(self.database.place, (key.table, key.referenced))
        pairs = set(zip(key.columns, key.referenced_columns, strict=True))
        return any(
            it.referenced == referenced and set(zip(it.columns, it.referenced_columns, strict=True)) == pairs
            for it in self.database.catalogue(self.session).foreign_keys([place]).get(place, ())
        )

    def set_up_procedures(self, articles: Sequence[RegisteredArticle]) -> list[str]:
        """Create or regenerate the generated procedures; one edited by hand is left alone, and said so."""
        with self._transaction():
            wanted = self._generated(articles)
            return GeneratedProcedures(self.session, self.database, self.key, self.where).set_up(wanted)

    def _generated(self, articles: Sequence[RegisteredArticle]) -> list[GeneratedProcedure]:
        """Return the procedures that setup makes for articles, in the open transaction."""
        scripter = self.database.scripter
        if scripter is None:
            return []
        found = targets(self.session, self.database, articles, self.where)
        return [it for target in found for it in made_procedures(scripter, target)]

    def set_up_watermark(self) -> list[str]:
        """Create the subscription's watermark: a new subscription has received nothing. An existing watermark is left
        alone."""
        with self._transaction():
            created = self._watermark.start()
        return (
            [f"created subscription {self.key.subscription} at {self.database.name(self.session)}"] if created else []
        )

    def scripts(self, article: RegisteredArticle, source: TableDescription, what: Scripted) -> list[str]:
        """Return `CREATE PROCEDURE` statements, without a terminator, as they fit the table that is there, or that
        setup would create."""
        scripter = self.database.scripter
        if scripter is None:
            return []
        return scripted(scripter, self._intended_target(article, source), what)

    def _intended_target(self, article: RegisteredArticle, source: TableDescription) -> SqlTarget:
        found = self._find_destination(article.destination)
        return intended_target(self.database, article, source, self.session.dialect, found)

    # Deliveries

    @property
    def sequences(self) -> SubscriberSequences | None:
        """Sequences that can be set; None where tables number their rows by themselves, or nobody has tried it."""
        return self.database.sequences(self.session, self.where)

    def constraints(self, articles: Sequence[RegisteredArticle]) -> Constraints:
        """Return unique keys and foreign keys of the articles' tables."""
        with self._transaction():
            found = targets(self.session, self.database, articles, self.where)
            return constraints_of(self.session, self.database, found)

    def rows_of_key(self, article: RegisteredArticle, key: Sequence[str | None]) -> list[Values]:
        """Return the article's row with this key as it is now; none where there is none. `key`: texts of the
        Publisher's. Raises ConfigurationError where the table is not as it was set up, DataError where it cannot hold
        the key."""
        with self._reading():
            return rows_of_key(self.session, self.database, article, key, self.where)

    def set_up_streams(self, streams: int) -> None:
        """Create a row for each stream, before any of them writes: others wait for its lock."""
        with self._transaction():
            self._watermark.start_streams(streams)

    def position(self) -> SubscriptionPosition:
        """Return where the subscription stands, after a delivery has ended whose job was killed.

        Raises ConfigurationError where the subscription is not set up, FencedError where another delivery goes on.
        """
        with self._fencing(), self._transaction():
            if not self._watermark.exists():
                raise self._not_set_up()
            self.database.wait_for_lock(self.session, _LOCK_SECONDS)
            return position_of(self._watermark.locked())

    @contextmanager
    def _fencing(self) -> Iterator[None]:
        try:
            yield
        except TransientError as error:
            if error.report.code in self.database.lock_timeouts:
                raise fenced(self.where) from error
            raise

    def _not_set_up(self) -> ConfigurationError:
        return not_set_up(self.where, self.key, self.database.name(self.session))

    def watermark(self) -> bytes:
        """Return the last transaction up to which all is applied. Raises ConfigurationError where it is not set up."""
        found = self.find_watermark()
        if found is None:
            raise self._not_set_up()
        return found

    def find_watermark(self) -> bytes | None:
        """Return the last transaction applied; None where the subscription is not set up."""
        with self._reading():
            return self._watermark.find() if self._watermark.exists() else None

    def find_durable_watermark(self) -> bytes | None:
        """Return the same, where what was applied survives a crash of the server: what comes before is not needed any
        more. Of most databases, every commit is durable."""
        return self.find_watermark()

    def move_watermark(self, expected: bytes, xact_seqno: bytes) -> None:
        """Move the watermark to where an administrator wants the next delivery to begin; forget what streams have
        applied past it. Raises FencedError where a delivery was faster."""
        with self._transaction():
            self.move_in_transaction(expected, xact_seqno)

    def move_in_transaction(self, expected: bytes, xact_seqno: bytes) -> None:
        """Move the watermark as `move_watermark` does, in the transaction that is open."""
        if bytes(self._watermark.locked()[0].xact_seqno) != expected:
            raise fenced(self.where)
        self._watermark.forget_streams()
        self._watermark.advance(xact_seqno)

    def hold(self, position: SubscriptionPosition) -> None:
        """Lock the watermark in the transaction that is open. Raises FencedError where another job was here since."""
        self._watermark.fence(position.watermark, finishing=position.unfinished)

    # Definitions

    def definitions(self) -> dict[str, int]:
        """Return by article (source) the `article_id` of the definition that its table and procedures stand at; an
        article is missing where nobody has recorded it."""
        with self._reading():
            return self._definitions.recorded() if self.database.has_table(self.session, ARTICLES) else {}

    def reload_reason(self, change: SchemaChange, old: RegisteredArticle) -> str | None:
        """Return why the log does not say which values the rows of this Subscriber have after a schema change of the
        article, in words; None where it does."""
        return reload_reason(change, old) or why_rows_unknown(change, old)

    def record_definitions(self, articles: Sequence[RegisteredArticle]) -> None:
        """Record that the tables and procedures of these articles stand at their definitions."""
        with self._transaction():
            self._definitions.record(articles)

    def release_tables(self, kept: Sequence[str]) -> None:
        """Record that tables of other articles than these (by source) are delivered to no more."""
        with self._transaction():
            self._definitions.release(kept)

    def claims(self) -> list[Claim]:
        """Return what other publications deliver to the same database. The model's tables must be of this version."""
        with self._reading():
            return self._definitions.claims() if self.database.has_table(self.session, ARTICLES) else []

    # Snapshots

    def has_snapshots(self) -> bool:
        """Return whether `MSreplication_snapshots` is there."""
        with self._reading():
            return self._snapshots.exist()

    def initialized_articles(self) -> dict[str, bytes]:
        """Return by article (source) the last transaction that is in the snapshot which its table began with, as the
        Subscriber itself has it."""
        with self._reading():
            return self._snapshots.initialized()
