"""What a user writes: a publication, its articles and its subscriptions (`dags/publications/<name>.yaml`).

Defaults are SQL Server's (`sp_addarticle`, `sp_addsubscription`, the Distribution Agent's profile).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

from croniter import croniter
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    JsonValue,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from tranrepl.error_numbers import SKIPPABLE, is_skippable
from tranrepl.errors import ConfigurationError
from tranrepl.model.commands import CallSyntax, Method, Operation, Propagation
from tranrepl.model.names import ConnectionId, ImportPath, Name, Table, TableName
from tranrepl.model.propagation import DeleteCommand, InsertCommand, Truncation, UpdateCommand, UpdatePolicy


def _cron_expression(value: str) -> str:
    if not croniter.is_valid(value):
        raise ValueError('allowed: a cron expression, as in "*/5 * * * *"')
    return value


def _lsn(value: str) -> str:
    if not re.fullmatch(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}", value):
        raise ValueError("allowed: an LSN of the Publisher, as in 16/B374D848")
    return value


def _skippable(value: object) -> str:
    if isinstance(value, bool) or not is_skippable(str(value)):
        allowed = ", ".join(sorted(SKIPPABLE, key=int))
        raise ValueError(f"not a data error; allowed: {allowed}, and a database's own, as 23505 or P0001")
    return str(value)


WholeNumber = Annotated[int, Field(strict=True)]
"""Neither text nor yes and no are numbers."""
Hours = Annotated[WholeNumber, Field(le=876_000)]
SkippableError = Annotated[
    str,
    BeforeValidator(_skippable),
    WithJsonSchema({"type": ["integer", "string"], "examples": [2627, 20598, 23505, "P0001"]}),
]


class ReplicaIdentity(StrEnum):
    """What the Publisher's log carries of a row before its change (PostgreSQL's REPLICA IDENTITY)."""

    FULL = "full"
    DEFAULT = "default"


class SyncType(StrEnum):
    """How a new subscription gets the rows that were there before it (`@sync_type` of sp_addsubscription)."""

    AUTOMATIC = "automatic"
    """By a snapshot, which the first run makes."""
    REPLICATION_SUPPORT_ONLY = "replication_support_only"
    """They are there already, or there are none."""
    INITIALIZE_FROM_LSN = "initialize_from_lsn"
    """They are there, as of `subscription_lsn`."""


class PreCreation(StrEnum):
    """What a snapshot does first with a destination table that is there (`@pre_creation_cmd` of sp_addarticle)."""

    NONE = "none"
    """Nothing: it must be empty."""
    DROP = "drop"
    DELETE = "delete"
    """It deletes the rows that the article's row filter is true for; all of them where it has none."""
    TRUNCATE = "truncate"


class OnUnknownRows(StrEnum):
    """What becomes of an article whose rows at a Subscriber may not be the Publisher's any more: it gained a column,
    its row filter changed, its table was rewritten."""

    REINITIALIZE = "reinitialize"
    """It waits for a snapshot, where the subscription takes one."""
    STOP = "stop"
    """The subscription stops until a validation or a snapshot has settled it."""


class StreamAssignment(StrEnum):
    """How a commit batch is divided among the subscription streams."""

    KEY = "key"
    """By primary key: all commands of one row go to one stream."""
    DEPENDENCIES = "dependencies"
    """By transaction: those that share a key, a unique value or a foreign key value go to one stream."""


class CommandOrder(StrEnum):
    """Among which commands those of an article keep their order, where they are applied serially."""

    TRANSACTIONS = "transactions"
    """All of them: a procedure or trigger sees every table as commit order promises."""
    OWN_ARTICLE = "own_article"
    """The article's own: they do not divide what goes in bulk."""


_EARLIER_SERIAL = "commands"


class Apply(StrEnum):
    """How commands are applied at the Subscriber."""

    AUTO = "auto"
    """In bulk, checked, where the outcome is the same; serially where it may not be."""
    SERIAL = "serial"
    """Command by command, in order. Its earlier name, `commands`, is accepted."""

    @classmethod
    def _missing_(cls, value: object) -> Apply | None:
        return cls.SERIAL if value == _EARLIER_SERIAL else None

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        described = handler(schema)
        handler.resolve_ref_schema(described)["enum"].append(_EARLIER_SERIAL)
        return described


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class PublisherSettings(_Settings):
    connection: ConnectionId
    """Airflow connection id of the Publisher; a shell sets AIRFLOW_CONN_<ID>."""
    snapshot_timeout: Annotated[WholeNumber, Field(ge=1, le=31_536_000)] = 3600
    """Seconds that a snapshot waits for transactions that were open at the Publisher when it began."""


class DistributorSettings(_Settings):
    connection: ConnectionId
    """Airflow connection id of the distribution database."""
    store: Annotated[str, Field(min_length=1)]
    """Where commands are stored: any path that Spark can write (a folder, s3a://…, hdfs://…). It belongs to this
    distribution database alone: clean-up removes batches that are not registered there."""
    min_distretention: Annotated[Hours, Field(ge=0)] = 0
    """Hours that a stored batch is kept at least, though every subscription has it."""
    max_distretention: Annotated[Hours, Field(ge=1)] = 72
    """Hours that a command waits for a Subscriber at most; then its subscription is deactivated."""
    history_retention: Annotated[Hours, Field(ge=1)] = 48
    """Hours that history rows and the errors they refer to are kept."""

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
    """A batch ends with the transaction that reaches this number of transactions. Transactions are never split."""
    read_batch_bytes: Annotated[WholeNumber, Field(ge=1, le=1024**4)] = 1024 * 1024 * 1024
    """A batch ends with the transaction that reaches this number of bytes read from the log."""


class Article(_Settings):
    source: Table
    """The published table, `schema.table`, exactly as the catalogue spells it."""
    destination: Table | None = None
    """The Subscriber's table. Default: the same name."""
    columns: Annotated[list[str], Field(min_length=1)] | None = None
    """The published columns (vertical filter), the primary key among them. Default: all."""
    ins_cmd: InsertCommand = Propagation(Method.PROCEDURE, CallSyntax.CALL)
    """How an INSERT is applied: CALL, SQL or NONE; CALL alone or with the name of a custom procedure."""
    upd_cmd: UpdateCommand = Propagation(Method.PROCEDURE, CallSyntax.SCALL)
    """How an UPDATE is applied: CALL, SCALL, MCALL, XCALL, SQL or NONE."""
    del_cmd: DeleteCommand = Propagation(Method.PROCEDURE, CallSyntax.CALL)
    """How a DELETE is applied: CALL, XCALL, SQL or NONE."""
    filter: Annotated[str, Field(min_length=1, max_length=8000)] | None = None
    """Row filter: a condition in the Publisher's SQL over published columns. Rows for which it is not true are not
    published."""
    update_policy: UpdatePolicy = UpdatePolicy.PAIRS
    """How an UPDATE of a unique column goes out: pairs, singleton_update or always_pairs."""
    truncate: Truncation = Truncation.REPLICATE
    """What TRUNCATE at the Publisher does: replicate, ignore or error."""
    lob_columns: list[str] = []
    """Large columns whose before images do not travel: XCALL sends NULL for them."""
    pre_creation_cmd: PreCreation = PreCreation.NONE
    """What a snapshot does first with a destination table that holds rows: none (refuse), drop, delete or truncate."""
    on_unknown_rows: OnUnknownRows = OnUnknownRows.REINITIALIZE
    """What happens where the article's rows may not be the Publisher's any more (it gained a column, its row filter
    changed, its table was rewritten): reinitialize (a snapshot), or stop."""
    replica_identity: ReplicaIdentity = ReplicaIdentity.FULL
    """`full`: setup sets REPLICA IDENTITY FULL, so that only changed values travel. `default`: the table is left as
    it is, and an UPDATE sends every value that the log carries."""

    order: CommandOrder = CommandOrder.TRANSACTIONS
    """Which commands those of this article keep their order among, where they are applied serially (a custom or
    edited procedure, a trigger): transactions (all), or own_article."""

    @property
    def destination_table(self) -> TableName:
        return self.destination or self.source

    def propagation(self, operation: Operation) -> Propagation:
        return {
            Operation.INSERT: self.ins_cmd,
            Operation.UPDATE: self.upd_cmd,
            Operation.DELETE: self.del_cmd,
        }[operation]

    @model_validator(mode="after")
    def _columns_once(self) -> Article:
        _refuse_repeated(self.columns or (), "columns")
        _refuse_repeated(self.lob_columns, "lob_columns")
        return self


def _commit_batch_size(subscription: dict[str, Any]) -> int:
    """Serially, a row that changes often costs more with each of its versions that the commit batch has left."""
    return 1_000 if subscription.get("apply") is Apply.SERIAL else 10_000


def _commit_batch_threshold(subscription: dict[str, Any]) -> int:
    return 10 * _commit_batch_size(subscription)


class Subscription(_Settings):
    name: Name
    connection: ConnectionId
    """Airflow connection id of the Subscriber."""
    sync_type: SyncType = SyncType.AUTOMATIC
    """Where a new subscription has the Publisher's rows from: automatic, replication_support_only or
    initialize_from_lsn."""
    subscription_lsn: Annotated[str, AfterValidator(_lsn)] | None = None
    """LSN of the Publisher, as in 16/B374D848: the Subscriber has every transaction committed before it. For
    initialize_from_lsn."""
    subscription_streams: Annotated[WholeNumber, Field(ge=1, le=64)] = 1
    """Subscriber connections that apply each commit batch in parallel: all commit, or all roll back. Never more than
    Spark has cores."""
    stream_assignment: StreamAssignment = StreamAssignment.KEY
    """How a commit batch is divided among streams: key or dependencies."""
    lock_timeout: Annotated[WholeNumber, Field(ge=1, le=3600)] = 10
    """Seconds that one of several streams waits for a lock, before the batch is rolled back and retried over a single
    connection."""
    apply: Apply = Apply.AUTO
    """auto (in bulk where that gives the same rows, else serially) or serial (always serially)."""
    skip_errors: list[SkippableError] = []
    """Numbers of data errors at which the failing command alone is skipped, and recorded in MSrepl_errors: SQL Server's
    (2627), or the database's own (23505, P0001)."""
    commit_batch_size: Annotated[WholeNumber, Field(ge=1, le=1_000_000)] = Field(default_factory=_commit_batch_size)
    """A commit at the Subscriber holds at most this many transactions (CommitBatchSize); default 10,000, and 1,000
    with apply: serial."""
    commit_batch_threshold: Annotated[WholeNumber, Field(ge=1, le=10_000_000)] = Field(
        default_factory=_commit_batch_threshold
    )
    """… or ends with the transaction that reaches this many commands (CommitBatchThreshold); default 100,000, and
    10,000 with apply: serial."""
    not_for_replication: bool = False
    """The Subscriber's foreign keys and ordinary triggers do not act on delivered changes (NOT FOR REPLICATION).
    MariaDB: its triggers still fire."""
    foreign_keys: bool = False
    """Tables that setup creates at the Subscriber get the Publisher's foreign keys among published tables, checked at
    commit and without cascades. MariaDB: with not_for_replication only."""

    @model_validator(mode="after")
    def _lsn_where_it_is_asked_for(self) -> Subscription:
        if (self.sync_type is SyncType.INITIALIZE_FROM_LSN) != (self.subscription_lsn is not None):
            raise ValueError("subscription_lsn: given with sync_type: initialize_from_lsn, and only with it")
        return self


class Alert(_Settings):
    notifier: ImportPath
    """Import path of an Airflow notifier."""
    arguments: dict[str, JsonValue] = {}
    """Its arguments. Templates find what there is to say as `alert`. Secrets belong into a connection."""


class Publication(_Settings):
    publication: Name
    publisher: PublisherSettings
    distributor: DistributorSettings
    schedule: Annotated[str, AfterValidator(_cron_expression)] | None = None
    """Cron expression of the DAG, in UTC; none: manual runs only."""
    validation_schedule: Annotated[str, AfterValidator(_cron_expression)] | None = None
    """Cron expression of the validation DAG, in UTC; none: manual runs only."""
    articles: Annotated[list[Article], Field(min_length=1)]
    subscriptions: Annotated[list[Subscription], Field(min_length=1)]
    log_reader: LogReaderSettings = LogReaderSettings()
    alerts: list[Alert] = []
    """Whom to tell when a batch has failed for good, when a subscription was deactivated, when a run is late."""
    latency_threshold: Annotated[WholeNumber, Field(ge=1, le=31_536_000)] | None = None
    """Seconds after which a run that has not ended is late, and a subscription's latency critical."""

    @model_validator(mode="after")
    def _names_once(self) -> Publication:
        _refuse_repeated([str(article.source) for article in self.articles], "articles: source")
        _refuse_repeated([str(article.destination_table) for article in self.articles], "articles: destination")
        _refuse_repeated([subscription.name for subscription in self.subscriptions], "subscriptions: name")
        return self

    def subscription(self, name: str) -> Subscription:
        for subscription in self.subscriptions:
            if subscription.name == name:
                return subscription
        raise ConfigurationError(
            f"publication {self.publication} has no subscription {name!r}",
            remedy=f"allowed: {', '.join(subscription.name for subscription in self.subscriptions)}",
        )

    def connection_ids(self) -> list[str]:
        """Every connection the publication's jobs need, each once."""
        ids = [self.publisher.connection, self.distributor.connection]
        return list(dict.fromkeys([*ids, *(subscription.connection for subscription in self.subscriptions)]))


def _refuse_repeated(values: Sequence[str], what: str) -> None:
    repeated = sorted({value for value in values if values.count(value) > 1})
    if repeated:
        raise ValueError(f"{what}: {', '.join(repeated)} more than once; allowed: each once")


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a publication file, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Publication.model_json_schema()}
