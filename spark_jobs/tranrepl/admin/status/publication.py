"""A publication's log reader and subscriptions, looked at: each server is queried by itself, all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from tranrepl.admin.status.log_reader import (
    LogContinuity,
    LogReaderHistory,
    PublisherAnswer,
    ask_for_continuity,
    ask_history,
    ask_publisher,
    log_reader_status,
)
from tranrepl.admin.status.report import (
    LogReaderStatus,
    PublicationStatus,
    SubscriptionStatus,
    what_is_wrong,
    with_names,
)
from tranrepl.admin.status.server_answers import PendingAnswer, error_line
from tranrepl.admin.status.subscription import SubscriptionQuestion, ask_subscriber, unanswered_subscription
from tranrepl.connections import Connection
from tranrepl.distributor.database import DistributionDatabase, PublicationRecord
from tranrepl.errors import ConfigurationError, ReplicationError
from tranrepl.settings.publication import Publication
from tranrepl.topology import Topology

PATIENCE_SECONDS = 15.0
"""How long each query to a server is waited for. At most three follow one another."""
Answer = TypeVar("Answer")


def status(
    topology: Topology,
    patience: float = PATIENCE_SECONDS,
    settings_file: str = "FILE",
) -> PublicationStatus:
    """Read the state at Publisher, Distributor and Subscribers. One that gives no answer within so many seconds is
    reported as away, and what the others answer is reported all the same. Commands name `settings_file`.

    Raises ConfigurationError where the publication is not set up.
    """
    with topology.distributor() as database:
        return _Status(topology, database, patience, settings_file).ask()


@dataclass(frozen=True, slots=True)
class _NotSetUp:
    error: ConfigurationError


@dataclass(frozen=True, slots=True)
class _Status:
    topology: Topology
    database: DistributionDatabase
    patience: float
    settings_file: str

    def ask(self) -> PublicationStatus:
        registered = self._ask_in_thread(self._distribution, self._record)
        publisher = self._ask_in_thread(self._publisher, lambda: ask_publisher(self.topology)).answer()
        record = registered.answer()
        if isinstance(record, _NotSetUp):
            raise record.error
        if isinstance(record, ReplicationError):
            return self._without_distributor(record, publisher)
        return self._with_distributor(record, publisher)

    def _record(self) -> PublicationRecord | _NotSetUp:
        """Return the publication as registered. Raises what keeps the database from answering at all."""
        self.database.ping()
        try:
            return self.database.publications.get(self.publication.publication)
        except ConfigurationError as error:
            return _NotSetUp(error)

    def _with_distributor(
        self, record: PublicationRecord, publisher: PublisherAnswer | ReplicationError
    ) -> PublicationStatus:
        watermarks = self._ask_subscribers(record.publisher_system)
        history = self._ask_in_thread(
            self._distribution, lambda: ask_history(self.database, record, self.settings_file)
        )
        continuity: PendingAnswer[LogContinuity] | None = None
        if isinstance(publisher, PublisherAnswer):
            continuity = self._ask_in_thread(
                self._publisher, lambda: ask_for_continuity(self.topology, self.database, record)
            )
        subscriptions = self._ask_subscriptions(record, watermarks)
        past = history.answer()
        reader = log_reader_status(
            record,
            publisher,
            past if isinstance(past, LogReaderHistory) else None,
            continuity.answer() if continuity is not None else None,
        )
        return self._report(reader, subscriptions, past if isinstance(past, ReplicationError) else None)

    def _without_distributor(
        self, error: ReplicationError, publisher: PublisherAnswer | ReplicationError
    ) -> PublicationStatus:
        watermarks = self._ask_subscribers(self._system() if isinstance(publisher, PublisherAnswer) else None)
        subscriptions = [
            _with_subscriber(unanswered_subscription(name, it if isinstance(it, bytes) else None, None), it)
            for name, it in watermarks.items()
        ]
        return self._report(log_reader_status(None, publisher, None, None), subscriptions, error)

    def _system(self) -> str | None:
        """Return the Publisher's system identifier as its server gives it, which may differ from the registered one."""
        system = self._ask_in_thread(self._publisher, self._ask_system).answer()
        return system if isinstance(system, str) else None

    def _ask_system(self) -> str:
        with self.topology.publisher("tranrepl status") as publisher:
            return publisher.identity().system

    def _ask_subscribers(self, system: str | None) -> dict[str, bytes | ReplicationError | None]:
        pending = {
            it.name: self._ask_in_thread(
                self.topology.subscriber_connection(it.name), partial(ask_subscriber, self.topology, system, it.name)
            )
            for it in self.publication.subscriptions
        }
        return {name: it.answer() for name, it in pending.items()}

    def _ask_subscriptions(
        self, record: PublicationRecord, watermarks: Mapping[str, bytes | ReplicationError | None]
    ) -> list[SubscriptionStatus]:
        pending = {}
        for name, watermark in watermarks.items():
            known = watermark if isinstance(watermark, bytes) else None
            question = SubscriptionQuestion(self.publication, self.database, record, name, known, self.settings_file)
            pending[name] = (known, self._ask_in_thread(self._distribution, question.ask))
        answers = {name: (known, it.answer()) for name, (known, it) in pending.items()}
        return [
            _with_subscriber(
                unanswered_subscription(name, known, it) if isinstance(it, ReplicationError) else it,
                watermarks[name],
            )
            for name, (known, it) in answers.items()
        ]

    def _report(
        self, reader: LogReaderStatus, subscriptions: list[SubscriptionStatus], error: ReplicationError | None
    ) -> PublicationStatus:
        found = PublicationStatus(
            publication=self.publication.publication,
            distributor_problem=error_line("the distribution database", error) if error is not None else None,
            log_reader=reader,
            subscriptions=subscriptions,
        )
        return with_names(found.model_copy(update={"wrong": what_is_wrong(found)}), self.settings_file)

    def _ask_in_thread(self, connection: Connection, question: Callable[[], Answer]) -> PendingAnswer[Answer]:
        return PendingAnswer(f"connection {connection}", question, self.patience)

    @property
    def publication(self) -> Publication:
        return self.topology.publication

    @property
    def _publisher(self) -> Connection:
        return self.topology.publisher_connection

    @property
    def _distribution(self) -> Connection:
        return self.topology.distributor_connection


def _with_subscriber(status: SubscriptionStatus, watermark: bytes | ReplicationError | None) -> SubscriptionStatus:
    """Return the status with the error that kept the Subscriber from answering."""
    if not isinstance(watermark, ReplicationError):
        return status
    return status.model_copy(update={"subscriber_problem": error_line("the Subscriber", watermark)})
