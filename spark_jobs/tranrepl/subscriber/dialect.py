"""What a Subscriber's database must be able to do, and what it may lack: the interface that every dialect fulfils."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from tranrepl.connections import Connection
from tranrepl.model.article import RegisteredArticle
from tranrepl.subscriber.applier import AS_CONFIGURED, Applier, ApplierOptions
from tranrepl.subscriber.base.snapshot import Snapshot
from tranrepl.subscriber.base.subscriber import Subscriber
from tranrepl.subscriber.base.teardown import Teardown
from tranrepl.subscriber.capabilities import Capabilities
from tranrepl.subscriber.comparison import SubscriberComparison
from tranrepl.subscriber.snapshot import Loader
from tranrepl.subscriber.subscription import SubscriptionKey


class Dialect(Protocol):
    """One kind of database as a Subscriber."""

    @property
    def capabilities(self) -> Capabilities: ...

    def unused_options(self, connection: Connection) -> Mapping[str, str]:
        """Return why each option of the connection that Airflow's hook takes and we do not use is not, by name."""
        ...

    def subscriber(
        self, connection: Connection, key: SubscriptionKey, application_name: str
    ) -> AbstractContextManager[Subscriber]:
        """Connect. Raises ConfigurationError where the database refuses us, TransientError where it is not there."""
        ...

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
        ...

    def snapshot(
        self, connection: Connection, key: SubscriptionKey, application_name: str
    ) -> AbstractContextManager[Snapshot]:
        """Connect to initialise the subscription."""
        ...

    def loader(
        self, connection: Connection, key: SubscriptionKey, snapshot: str, options: ApplierOptions = AS_CONFIGURED
    ) -> AbstractContextManager[Loader]:
        """Connect to load ranges of a snapshot that has begun."""
        ...

    def teardown(
        self, connection: Connection, key: SubscriptionKey, application_name: str
    ) -> AbstractContextManager[Teardown]:
        """Connect to remove what setup made for a publication."""
        ...

    def comparison(
        self, connection: Connection, key: SubscriptionKey, articles: Sequence[RegisteredArticle], sessions: int
    ) -> AbstractContextManager[SubscriberComparison]:
        """Hold the articles' tables as they are now, to be compared; `sessions` is how many may be read at a time.
        Raises ConfigurationError where the rows of this kind of database cannot be compared."""
        ...
