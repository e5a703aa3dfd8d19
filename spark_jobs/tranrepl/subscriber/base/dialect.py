"""One kind of database as a Subscriber: how each of its ends is opened."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from tranrepl.connections import Connection
from tranrepl.model.article import RegisteredArticle
from tranrepl.subscriber.applier_options import AS_CONFIGURED, ApplierOptions
from tranrepl.subscriber.base.applier import Applier
from tranrepl.subscriber.base.snapshot import Loader, Snapshot
from tranrepl.subscriber.base.subscriber import Subscriber
from tranrepl.subscriber.base.teardown import Teardown
from tranrepl.subscriber.capabilities import Capabilities
from tranrepl.subscriber.comparison import SubscriberComparison
from tranrepl.subscriber.subscription import SubscriptionKey


class Dialect(ABC):
    """To open an end raises ConfigurationError where the database refuses us, TransientError where it is not there."""

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities: ...

    @abstractmethod
    def unused_options(self, connection: Connection) -> Mapping[str, str]:
        """Return why each option of the connection that Airflow's hook takes and we do not use is not, by name."""

    @abstractmethod
    def subscriber(
        self, connection: Connection, key: SubscriptionKey, application_name: str, *, writes: bool = False
    ) -> AbstractContextManager[Subscriber]:
        """Connect; `writes`: every transaction will write."""

    def refuse_script(self, script: str) -> None:  # noqa: B027 — where no scripts run, none is refused
        """Raise ConfigurationError where a script cannot run at its place among the changes."""

    @contextmanager
    def snapshot(self, connection: Connection, key: SubscriptionKey, application_name: str) -> Iterator[Snapshot]:
        """Connect to initialise the subscription."""
        with self.subscriber(connection, key, application_name, writes=True) as subscriber:
            yield Snapshot(subscriber)

    @contextmanager
    def teardown(self, connection: Connection, key: SubscriptionKey, application_name: str) -> Iterator[Teardown]:
        """Connect to remove what setup made for a publication."""
        with self.subscriber(connection, key, application_name, writes=True) as subscriber:
            yield Teardown(subscriber.session, subscriber.database, key)

    @abstractmethod
    def applier(
        self,
        connection: Connection,
        key: SubscriptionKey,
        articles: Mapping[int, RegisteredArticle],
        options: ApplierOptions = AS_CONFIGURED,
    ) -> AbstractContextManager[Applier]:
        """Connect to apply commands of these articles, by article_id. What is open at the end is rolled back.

        Raises ConfigurationError where the session may not or cannot be what `options` ask.
        """

    @abstractmethod
    def loader(
        self, connection: Connection, key: SubscriptionKey, snapshot: str, options: ApplierOptions = AS_CONFIGURED
    ) -> AbstractContextManager[Loader]:
        """Connect to load ranges of a snapshot that has begun."""

    @abstractmethod
    def comparison(
        self, connection: Connection, key: SubscriptionKey, articles: Sequence[RegisteredArticle], sessions: int
    ) -> AbstractContextManager[SubscriberComparison]:
        """Hold the articles' tables as they are now, to be compared; `sessions` is how many may be read at a time.
        Raises ConfigurationError where the rows of this kind of database cannot be compared."""
