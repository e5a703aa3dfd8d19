"""What a user writes: a publication, its articles and its subscriptions (`dags/publications/<name>.yaml`).

Defaults are SQL Server's (`sp_addarticle`, `sp_addsubscription`, the Distribution Agent's profile).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from enum import StrEnum
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, ModelWrapValidatorHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from tranrepl.errors import ConfigurationError
from tranrepl.model.commands import CallSyntax, Method, Operation, Propagation
from tranrepl.model.names import ConnectionId, Name, TableName, TableOrPattern, TablePattern
from tranrepl.model.propagation import DeleteCommand, InsertCommand, Truncation, UpdateCommand, UpdatePolicy
from tranrepl.settings.alert import Alert
from tranrepl.settings.values import (
    CONTINUOUS,
    CronExpression,
    Hours,
    Interval,
    Schedule,
    Seconds,
    SkippableError,
    WholeNumber,
)

DEFAULT_RUN_FOR = 3600


class ReplicaIdentity(StrEnum):
    """What the Publisher's log carries of a row before its change (PostgreSQL's REPLICA IDENTITY)."""

    FULL = "full"
    """`setup` sets REPLICA IDENTITY FULL, so that only the values that changed travel."""
    DEFAULT = "default"
    """The table is left as it is, and an UPDATE sends every value that the log carries."""


class SyncType(StrEnum):
    """How a new subscription gets the rows that were there before it (`@sync_type` of sp_addsubscription)."""

    AUTOMATIC = "automatic"
    """The first run copies them by a snapshot."""
    REPLICATION_SUPPORT_ONLY = "replication_support_only"
    """Nothing is copied: the rows are at the Subscriber already, or there are none."""
    INITIALIZE_FROM_LSN = "initialize_from_lsn"
    """Nothing is copied: the Subscriber has the rows as of `subscription_lsn`."""


class Partitions(StrEnum):
    """What `setup` creates for a partitioned table where there is no destination yet."""

    NONE = "none"
    """The destination is one table."""
    SAME = "same"
    """A PostgreSQL Subscriber's table is partitioned as the Publisher's is. Added, dropped and renamed partitions
    follow with the other schema changes; where those are not captured, `setup` creates new ones."""


class PreCreation(StrEnum):
    """What a snapshot does first with a destination table that is there (`@pre_creation_cmd` of sp_addarticle)."""

    NONE = "none"
    """Nothing: the table must be empty, otherwise `check` refuses."""
    DROP = "drop"
    """The table is dropped and created again."""
    DELETE = "delete"
    """The rows for which the article's row filter is true are deleted; all rows where it has no filter."""
    TRUNCATE = "truncate"
    """The table is truncated."""


class OnUnknownRows(StrEnum):
    """What becomes of an article whose rows at a Subscriber may not be the Publisher's any more: it gained a column,
    its row filter changed, its table was rewritten."""

    REINITIALIZE = "reinitialize"
    """The article gets a new snapshot, where the subscription has `sync_type: automatic`."""
    STOP = "stop"
    """The subscription stops until a validation has found or made the rows equal, or a snapshot has replaced them."""


class StreamAssignment(StrEnum):
    """How a commit batch is divided among the subscription streams."""

    KEY = "key"
    """All commands of one row go to one stream."""
    DEPENDENCIES = "dependencies"
    """Transactions that share a key, a unique value or a foreign key value go to one stream."""


class NewTables(StrEnum):
    """What becomes of a table that was made after setup and that a pattern names."""

    REPORT = "report"
    """A run says that there is one; the next `setup` publishes it."""
    JOIN = "join"
    """The next run that begins, or continuous agents within seconds, publish it, as `setup` does, where all
    subscriptions have `sync_type: automatic`."""


class CommandOrder(StrEnum):
    """Among which commands those of an article keep their order, where they are applied serially."""

    TRANSACTIONS = "transactions"
    """All commands keep commit order: a procedure or trigger sees every table as it was at that moment."""
    OWN_ARTICLE = "own_article"
    """Only this article's commands keep commit order among themselves, so other articles can be applied in bulk."""


_EARLIER_SERIAL = "commands"


class Apply(StrEnum):
    """How a delivery applies its commands."""

    AUTO = "auto"
    """In bulk where that gives the same rows, which is verified; serially where it may not."""
    SERIAL = "serial"
    """Serially: every command by itself, in commit order."""

    @classmethod
    def _missing_(cls, value: object) -> Apply | None:
        return cls.SERIAL if value == _EARLIER_SERIAL else None

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        described = handler(schema)
        resolved = handler.resolve_ref_schema(described)
        earlier = {
            "const": _EARLIER_SERIAL,
            "deprecated": True,
            "description": f"The earlier name of `{cls.SERIAL}`, which is still accepted.",
        }
        resolved["oneOf"] = [{"enum": resolved.pop("enum")}, earlier]
        return described


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class PublisherSettings(_Settings):
    connection: ConnectionId
    """Airflow connection id of the Publisher. In a shell it is the variable `AIRFLOW_CONN_<ID>`."""
    snapshot_timeout: Seconds = 3600
    """Seconds that a snapshot or a validation waits for transactions that were open at the Publisher when it began."""


class DistributorSettings(_Settings):
    connection: ConnectionId
    """Airflow connection id of the distribution database."""
    store: Annotated[str, Field(min_length=1)]
    """Where commands are stored: an absolute path that every Spark worker mounts, or object storage
    (`s3://bucket/path`, `gs://bucket/path`, `az://container/path`). A store belongs to one distribution database, whose
    clean-up removes batches that are not registered there: a file in it says whose it is, and others are refused.
    Publications of one distribution database may share it."""
    store_connection: ConnectionId | None = None
    """Airflow connection id of the store, where it is object storage. Without it, machines use their own identity
    there."""
    min_distretention: Annotated[Hours, Field(ge=0)] = 0
    """Hours that a stored batch is kept at least, also when every subscription has it."""
    max_distretention: Annotated[Hours, Field(ge=1)] = 72
    """Hours that a command waits for a Subscriber at most. A subscription with an older command is deactivated."""
    history_retention: Annotated[Hours, Field(ge=1)] = 48
    """Hours that history rows and the errors they refer to are kept, and that what was delivered, how long it took and
    what was left are kept for each minute (`msrepl_deliveries`)."""
    store_free_threshold: Annotated[WholeNumber, Field(ge=0, le=100)] = 10
    """Percent of the store's disk below which alerts warn that it is nearly full, where the store is a path."""
    measurement_retention: Annotated[Hours, Field(ge=1)] = 2160
    """Hours that these are kept for each hour, once they are kept for each minute no more."""

    @property
    def connection_ids(self) -> list[str]:
        """Return the connections of the distribution database and, where it has one, of the store."""
        return [self.connection] if self.store_connection is None else [self.connection, self.store_connection]

    @model_validator(mode="after")
    def _connection_of_a_bucket(self) -> DistributorSettings:
        if self.store_connection is not None and urlsplit(self.store).scheme in ("", "file"):
            raise ValueError("store_connection: a path needs none; allowed: with s3://…, gs://…, az://…")
        return self

    @model_validator(mode="after")
    def _retention_in_order(self) -> DistributorSettings:
        if self.min_distretention > self.max_distretention:
            raise ValueError(
                f"min_distretention: {self.min_distretention}: allowed: at most max_distretention, "
                f"{self.max_distretention}"
            )
        return self


class LogReaderSettings(_Settings):
    read_batch_size: Annotated[WholeNumber, Field(ge=1, le=1_000_000_000)] = 500_000
    """Transactions that a stored batch holds at most."""
    read_batch_bytes: Annotated[WholeNumber, Field(ge=1, le=1024**4)] = 1024 * 1024 * 1024
    """A stored batch ends with the transaction that reaches this number of bytes of log. Transactions are never
    split."""
    gathering_interval: Interval | None = None
    """Seconds for which a continuous log reader gathers transactions for a batch. Without it 0.02, in object storage
    0.25: each batch is a request there, which is paid for."""


class Article(_Settings):
    source: TableOrPattern
    """The published table, `schema.table`, as the catalogue spells it. A part with a dot, a space, a quote or a *
    stands in double quotes. A * outside of them makes it a pattern, as in `sales.*` or `sales.order_*`: each table of
    the schema whose name matches is an article with these settings, unless another entry names the table itself. Of
    several patterns that match, the last one counts."""
    destination: TableOrPattern | None = None
    """The Subscriber's table; without it, a table of the same name. Of a pattern, the Subscriber's schema: `archive.*`.
    """
    destinations: dict[str, TableOrPattern] = {}
    """Other destination tables at single subscriptions, by the subscription's name: `{mart: dbo.orders}`; of a pattern,
    other schemas: `{mart: dbo.*}`."""
    exclude: list[TableOrPattern] = []
    """Tables and patterns of tables that `source`, a pattern, does not mean."""
    new_tables: NewTables = NewTables.REPORT
    """What happens with tables that are made later and that `source`, a pattern, matches."""
    columns: Annotated[list[str], Field(min_length=1)] | None = None
    """The published columns (column filter), with the primary key among them; without it, all columns."""
    ins_cmd: InsertCommand = Propagation(Method.PROCEDURE, CallSyntax.CALL)
    """How an INSERT is applied: by a generated procedure (CALL), by a custom procedure (CALL and its name), by a
    statement (SQL), or not at all (NONE)."""
    upd_cmd: UpdateCommand = Propagation(Method.PROCEDURE, CallSyntax.SCALL)
    """How an UPDATE is applied: by a procedure, generated or custom, with the call syntax CALL, SCALL, MCALL or XCALL;
    by a statement (SQL), or not at all (NONE)."""
    del_cmd: DeleteCommand = Propagation(Method.PROCEDURE, CallSyntax.CALL)
    """How a DELETE is applied: by a procedure, generated or custom, with the call syntax CALL or XCALL; by a statement
    (SQL), or not at all (NONE)."""
    filter: Annotated[str, Field(min_length=1, max_length=8000)] | None = None
    """The row filter: a condition in the Publisher's SQL over published columns. Rows for which it is false or NULL are
    not published."""
    update_policy: UpdatePolicy = UpdatePolicy.PAIRS
    """How an UPDATE that changes a column of a primary key, unique constraint or unique index is sent."""
    truncate: Truncation = Truncation.REPLICATE
    """What a TRUNCATE of the published table does at the Subscriber."""
    lob_columns: list[str] = []
    """Large columns whose before images do not travel: XCALL sends NULL for them."""
    partitions: Partitions = Partitions.NONE
    """How `setup` creates the destination of a partitioned table. A destination that exists is left as it is."""
    pre_creation_cmd: PreCreation = PreCreation.NONE
    """What a snapshot does first with a destination table that exists."""
    on_unknown_rows: OnUnknownRows = OnUnknownRows.REINITIALIZE
    """What happens when the article's rows at the Subscriber may differ from the Publisher's, because the article
    gained a column, its row filter changed, or its table was rewritten."""
    replica_identity: ReplicaIdentity = ReplicaIdentity.FULL
    """How much of a row before its change the Publisher's log holds (PostgreSQL's REPLICA IDENTITY)."""
    order: CommandOrder = CommandOrder.TRANSACTIONS
    """Which order this article's commands keep where they are applied serially, as with a custom procedure or a
    trigger."""

    @property
    def pattern(self) -> TablePattern | None:
        """The source, where it is a pattern."""
        return self.source if isinstance(self.source, TablePattern) else None

    @property
    def destination_table(self) -> TableName:
        return self.destination or self.source

    def matches(self, table: TableName) -> bool:
        """Return whether the source is a pattern and means the table."""
        excluded = (it.matches(table) if isinstance(it, TablePattern) else it == table for it in self.exclude)
        return self.pattern is not None and self.pattern.matches(table) and not any(excluded)

    def of_table(self, table: TableName) -> Article:
        """Return the article of one table that the source, a pattern, means."""

        def named(there: TableName) -> TableName:
            return TableName(there.schema, table.table) if isinstance(there, TablePattern) else there

        return self.model_copy(
            update={
                "source": table,
                "exclude": [],
                "new_tables": NewTables.REPORT,
                "destination": self.destination and named(self.destination),
                "destinations": {name: named(it) for name, it in self.destinations.items()},
            }
        )

    def at(self, subscription: str) -> Article:
        """Return the article with the destination that it has at a subscription."""
        there = self.destinations.get(subscription, self.destination)
        return self.model_copy(update={"destination": there, "destinations": {}}) if self.destinations else self

    def propagation(self, operation: Operation) -> Propagation:
        return {
            Operation.INSERT: self.ins_cmd,
            Operation.UPDATE: self.upd_cmd,
            Operation.DELETE: self.del_cmd,
        }[operation]

    @model_validator(mode="after")
    def _patterns_alike(self) -> Article:
        if self.pattern is None and (self.exclude or self.new_tables is not NewTables.REPORT):
            which = "exclude" if self.exclude else "new_tables"
            raise ValueError(f"{which}: allowed where source is a pattern, as in {self.source.schema}.*")
        allowed = "a table, because source is one"
        if self.pattern is not None:
            allowed = "all tables of a schema, as in archive.*, because source is a pattern"
        for key, table in self._destinations().items():
            if (isinstance(table, TablePattern) and table.is_whole_schema) is (self.pattern is None):
                raise ValueError(f"{key}: {table}; allowed: {allowed}")
        return self

    def _destinations(self) -> dict[str, TableName]:
        own = {} if self.destination is None else {"destination": self.destination}
        return own | {f"destinations: {name}": it for name, it in self.destinations.items()}

    @model_validator(mode="after")
    def _columns_once(self) -> Article:
        _refuse_repeated(self.columns or (), "columns")
        _refuse_repeated(self.lob_columns, "lob_columns")
        return self


def _commit_batch_size(subscription: dict[str, Any]) -> int:
    """Return the default of `commit_batch_size`: smaller for serial apply, where a row that changes often costs more
    with each of its versions in the commit batch."""
    return 1_000 if subscription.get("apply") is Apply.SERIAL else 10_000


def _commit_batch_threshold(subscription: dict[str, Any]) -> int:
    return 10 * _commit_batch_size(subscription)


class Subscription(_Settings):
    name: Name
    """The subscription's name: letters, digits, _ and -. It must not change once the subscription is set up."""
    connection: ConnectionId
    """Airflow connection id of the Subscriber."""
    sync_type: SyncType = SyncType.AUTOMATIC
    """Where a new subscription gets the rows from that were at the Publisher before it."""
    subscription_lsn: Annotated[str, Field(min_length=1)] | None = None
    """With `sync_type: initialize_from_lsn`: the Subscriber has every transaction that the Publisher committed before
    this position in its log, written as the Publisher writes positions. PostgreSQL's are LSNs, as in 16/B374D848."""
    subscription_streams: Annotated[WholeNumber, Field(ge=1, le=64)] = 1
    """Connections to the Subscriber that apply each commit batch in parallel: all of them commit, or all roll back. No
    more are used than Spark has cores."""
    stream_assignment: StreamAssignment = StreamAssignment.KEY
    """How a commit batch is divided among the streams."""
    lock_timeout: Annotated[WholeNumber, Field(ge=1, le=3600)] = 10
    """Seconds that one of several streams waits for a lock. After that the batch is rolled back and retried over a
    single connection."""
    apply: Apply = Apply.AUTO
    """How commands are applied at the Subscriber."""
    skip_errors: list[SkippableError] = []
    """Numbers of data errors at which the failing command alone is skipped and recorded in `msrepl_errors`: SQL
    Server's (2627, 20598) or the database's own (23505, P0001, 1062)."""
    commit_batch_size: Annotated[WholeNumber, Field(ge=1, le=1_000_000)] = Field(default_factory=_commit_batch_size)
    """Transactions that one commit at the Subscriber holds at most (CommitBatchSize). With `apply: serial` the
    default is 1,000."""
    commit_batch_threshold: Annotated[WholeNumber, Field(ge=1, le=10_000_000)] = Field(
        default_factory=_commit_batch_threshold
    )
    """A commit at the Subscriber ends with the transaction that reaches this number of commands
    (CommitBatchThreshold). Transactions are never split. With `apply: serial` the default is 10,000."""
    not_for_replication: bool = False
    """Whether the Subscriber's foreign keys and ordinary triggers leave delivered changes alone (NOT FOR REPLICATION).
    In MariaDB triggers still fire."""
    foreign_keys: bool = False
    """Whether tables that `setup` creates at the Subscriber get the Publisher's foreign keys among published tables,
    checked at commit and without cascades. In MariaDB it needs `not_for_replication: true`; in SQL Server it
    is refused."""
    sequences: bool | None = None
    """Whether sequences at a PostgreSQL Subscriber, also those of identity columns, and AUTO_INCREMENT at MariaDB or
    MySQL follow the Publisher's after each delivery and snapshot. When left out, only those follow that `setup` created
    at PostgreSQL. `setup` creates such columns unless it is `false`."""

    @model_validator(mode="after")
    def _lsn_where_it_is_asked_for(self) -> Subscription:
        if (self.sync_type is SyncType.INITIALIZE_FROM_LSN) != (self.subscription_lsn is not None):
            raise ValueError("subscription_lsn: given with sync_type: initialize_from_lsn, and only with it")
        return self


class Publication(_Settings):
    publication: Name
    """The publication's name, also that of its DAG: letters, digits, _ and -. It does not end with `_validate`,
    `_reinitialize`, `_setup` or `_administer`, which are other DAGs' names."""
    publisher: PublisherSettings
    distributor: DistributorSettings
    schedule: Schedule | None = None
    """Cron expression of the DAG, in UTC; without it, the DAG runs when somebody triggers it. With `continuous`, one
    run follows the other without a gap, and log reader and deliveries are continuous agents, side by side."""
    run_for: Seconds = DEFAULT_RUN_FOR
    """Seconds that a run lasts, with `schedule: continuous`."""
    polling_interval: Interval = 1.0
    """Seconds between two polls of continuous agents (`schedule: continuous`, `tranrepl run FILE --continuous`), where
    no notification reaches them."""
    validation_schedule: CronExpression | None = None
    """Cron expression of the DAG `<publication>_validate`, in UTC; without it, that DAG runs when somebody triggers
    it."""
    articles: Annotated[list[Article], Field(min_length=1)]
    subscriptions: Annotated[list[Subscription], Field(min_length=1)]
    replicate_ddl: Annotated[bool, Field(strict=True)] = True
    """Whether schema changes of published tables are replicated (`@replicate_ddl` of sp_addpublication). `setup` then
    creates event triggers at the Publisher that capture them. Without the triggers, or where this is `false`, a schema
    change stops the publication."""
    log_reader: LogReaderSettings = LogReaderSettings()
    """How much of the log one stored batch holds."""
    alerts: list[Alert] = []
    """Airflow notifiers that send a message when something fails, is late or was skipped."""
    latency_threshold: Seconds | None = None
    """Seconds after which a run that has not ended is late, and a subscription's latency is critical."""

    retained_log_threshold: Annotated[WholeNumber, Field(ge=1, le=1_000_000_000)] | None = None
    """Megabytes of log that the Publisher may retain before alerts warn of it."""

    open_transaction_threshold: Seconds = 3600
    """Seconds that a transaction may be open at the Publisher before alerts warn of it: the log since its beginning is
    retained."""

    catalog_xmin_threshold: Annotated[WholeNumber, Field(ge=1, le=2_000_000_000)] = 100_000_000
    """Age of a PostgreSQL slot's `catalog_xmin`, in transactions, above which alerts warn of it: since then no dead row
    of the Publisher's catalogue is removed, and with two thousand million the server would stop."""

    missed_runs_threshold: Annotated[WholeNumber, Field(ge=1, le=1000)] = 3
    """Intervals of `schedule` without a run after which alerts warn of it. With `schedule: continuous` they warn of
    agents that have not run for ten minutes."""

    tracer_interval: Seconds | None = None
    """Seconds after which the log reader posts a tracer token by itself, at the next run that begins; without it, only
    `tranrepl trace FILE` does. A run with a token has something to read, and starts Spark."""

    @model_validator(mode="wrap")
    @classmethod
    def _checked(cls, data: object, check: ModelWrapValidatorHandler[Publication]) -> Publication:
        publication = check(data)
        # One that is there already was checked: a request is made of it.
        return publication if publication is data else publication._names_once()

    def _names_once(self) -> Publication:
        _refuse_repeated([article.source for article in self.articles], "articles: source")
        names = [subscription.name for subscription in self.subscriptions]
        _refuse_repeated(names, "subscriptions: name")
        _refuse_shared_destinations([it for it in self.articles if it.pattern is None], names)
        for article in self.articles:
            for name in article.destinations.keys() - set(names):
                raise ValueError(
                    f"articles: {article.source}: destinations: {name}: there is no such subscription; "
                    f"allowed: {', '.join(names)}"
                )
        return self

    @model_validator(mode="after")
    def _run_for_where_runs_last(self) -> Publication:
        # In a request it stands whether it was written or not.
        if self.run_for != DEFAULT_RUN_FOR and not self.is_continuous:
            raise ValueError(
                f"run_for: given with schedule: {CONTINUOUS}, and only with it: other runs end by themselves"
            )
        return self

    @property
    def has_patterns(self) -> bool:
        """Whether an entry of its articles means several tables."""
        return any(it.pattern is not None for it in self.articles)

    def article(self, table: TableName) -> Article | None:
        """Return the article of a table, by its own entry or by the last pattern that means it; None without one."""
        own = next((it for it in self.articles if it.source == table), None)
        pattern = self.pattern_of(table) if own is None else None
        return pattern.of_table(table) if pattern is not None else own

    @property
    def patterns(self) -> list[Article]:
        """The entries with a pattern, the last one, which counts, first."""
        return [it for it in reversed(self.articles) if it.pattern is not None]

    def pattern_of(self, table: TableName) -> Article | None:
        """Return the last entry with a pattern that means the table."""
        return of_pattern(self.patterns, table)

    def of_tables(self, tables: Iterable[TableName]) -> Publication:
        """Return the publication with articles of these tables in the place of its patterns."""
        if not self.has_patterns:
            return self
        own = [it for it in self.articles if it.pattern is None]
        named, patterns = {it.source for it in own}, self.patterns
        meant = [(it, of_pattern(patterns, it)) for it in sorted(set(tables) - named)]
        found = [pattern.of_table(table) for table, pattern in meant if pattern is not None]
        return self.model_copy(update={"articles": [*own, *found]})

    def require_own_destinations(self) -> None:
        """Raise ConfigurationError where two articles have one destination, as tables of patterns may."""
        try:
            _refuse_shared_destinations(self.articles, [it.name for it in self.subscriptions])
        except ValueError as error:
            raise ConfigurationError(
                f"publication {self.publication}: {error}",
                remedy="give one of the tables an entry of its own, with another destination, or exclude it",
            ) from None

    def at(self, subscription: str) -> Publication:
        """Return the publication with the destinations that its articles have at a subscription."""
        return self.model_copy(update={"articles": [it.at(subscription) for it in self.articles]})

    @property
    def is_continuous(self) -> bool:
        """Whether scheduled runs are of continuous agents."""
        return self.schedule == CONTINUOUS

    @property
    def cron(self) -> str | None:
        """The schedule's cron expression; None where it has none."""
        return None if self.is_continuous else self.schedule

    def subscription(self, name: str) -> Subscription:
        for subscription in self.subscriptions:
            if subscription.name == name:
                return subscription
        raise ConfigurationError(
            f"publication {self.publication} has no subscription {name!r}",
            remedy=f"allowed: {', '.join(subscription.name for subscription in self.subscriptions)}",
        )

    def connection_ids(self) -> list[str]:
        """Return every connection that the publication's jobs need, each once."""
        ids = [self.publisher.connection, *self.distributor.connection_ids]
        return list(dict.fromkeys([*ids, *(subscription.connection for subscription in self.subscriptions)]))


def of_pattern(patterns: Iterable[Article], table: TableName) -> Article | None:
    """Return the first of these entries that means the table."""
    return next((it for it in patterns if it.matches(table)), None)


def _refuse_shared_destinations(articles: Sequence[Article], subscriptions: Sequence[str]) -> None:
    _refuse_repeated([it.destination_table for it in articles], "articles: destination")
    for name in subscriptions:
        if any(name in it.destinations for it in articles):
            there = [it.at(name).destination_table for it in articles]
            _refuse_repeated(there, f"articles: destinations: {name}")


def _refuse_repeated(values: Sequence[Hashable], what: str) -> None:
    repeated = sorted(str(value) for value, times in Counter(values).items() if times > 1)
    if repeated:
        raise ValueError(f"{what}: {', '.join(repeated)} more than once; allowed: each once")


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a publication file, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Publication.model_json_schema()}
