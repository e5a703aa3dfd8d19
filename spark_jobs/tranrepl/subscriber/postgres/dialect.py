"""PostgreSQL as a Subscriber: everything the interface asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial

from tranrepl.connections import Connection
from tranrepl.errors import ConfigurationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.postgres.script_check import refusal
from tranrepl.postgres.session import connect, translated_errors
from tranrepl.subscriber.applier_options import AS_CONFIGURED, ApplierOptions
from tranrepl.subscriber.base.dialect import Dialect
from tranrepl.subscriber.capabilities import Capabilities
from tranrepl.subscriber.postgres.applier import PostgresApplier
from tranrepl.subscriber.postgres.comparison import PostgresComparison, open_comparison
from tranrepl.subscriber.postgres.database import POSTGRES, configure_session
from tranrepl.subscriber.postgres.prefetch import Prefetch
from tranrepl.subscriber.postgres.snapshot import PostgresLoader, PostgresSnapshot
from tranrepl.subscriber.postgres.subscriber import PostgresSubscriber
from tranrepl.subscriber.subscription import SubscriptionKey


class PostgresDialect(Dialect):
    """Over psycopg, commands staged by COPY."""

    @property
    def capabilities(self) -> Capabilities:
        return POSTGRES.capabilities

    def unused_options(self, connection: Connection) -> Mapping[str, str]:
        return connection.unused_by_libpq()

    def refuse_script(self, script: str) -> None:
        if (why := refusal(script)) is not None:
            raise ConfigurationError(f"a script cannot run within a transaction of the Subscribers: {why}")

    @contextmanager
    def subscriber(
        self, connection: Connection, key: SubscriptionKey, application_name: str, *, writes: bool = False
    ) -> Iterator[PostgresSubscriber]:
        del writes
        with connect(connection, application_name, autocommit=True) as session:
            yield PostgresSubscriber(session, key)

    @contextmanager
    def applier(
        self,
        connection: Connection,
        key: SubscriptionKey,
        articles: Mapping[int, RegisteredArticle],
        options: ApplierOptions = AS_CONFIGURED,
    ) -> Iterator[PostgresApplier]:
        with (
            translated_errors(f"Subscriber {key.subscription}"),
            connect(connection, f"tranrepl {key.subscription}") as session,
        ):
            # Nothing is lost by it: the watermark is lost with the commands. The last commit waits for the disk.
            session.execute("SET synchronous_commit = off")
            # Compiling a statement over so many rows takes longer than running it.
            session.execute("SET jit = off")
            configure_session(session, f"Subscriber {key.subscription}", options)
            name = f"tranrepl {key.subscription} prefetch"
            prefetch = Prefetch(partial(connect, connection, name, autocommit=True), key, articles)
            other = partial(connect, connection, f"tranrepl {key.subscription} labels", autocommit=True)
            applier = PostgresApplier(session, key, articles, prefetch, other, options)
            session.commit()
            with closing(prefetch):
                yield applier

    @contextmanager
    def snapshot(
        self, connection: Connection, key: SubscriptionKey, application_name: str
    ) -> Iterator[PostgresSnapshot]:
        with self.subscriber(connection, key, application_name) as subscriber:
            yield PostgresSnapshot(subscriber)

    @contextmanager
    def loader(
        self, connection: Connection, key: SubscriptionKey, snapshot: str, options: ApplierOptions = AS_CONFIGURED
    ) -> Iterator[PostgresLoader]:
        with connect(connection, f"tranrepl {key.subscription}", autocommit=True) as session:
            # The commit that sets the watermark waits for the disk, and for all that was written before it.
            session.execute("SET synchronous_commit = off")
            configure_session(session, f"Subscriber {key.subscription}", options)
            yield PostgresLoader(session, key, snapshot)

    def comparison(
        self, connection: Connection, key: SubscriptionKey, articles: Sequence[RegisteredArticle], sessions: int
    ) -> AbstractContextManager[PostgresComparison]:
        # Any session can import the snapshot: those of Spark's tasks do.
        del sessions
        return open_comparison(connection, key, articles)
