"""Databases that SQLAlchemy reaches, as Subscribers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from tranrepl.connections import Connection
from tranrepl.errors import ConfigurationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.subscriber.applier_options import AS_CONFIGURED, ApplierOptions
from tranrepl.subscriber.base.database import SqlDatabase, translated_errors
from tranrepl.subscriber.base.dialect import Dialect
from tranrepl.subscriber.base.sql_applier import SqlApplier
from tranrepl.subscriber.base.sql_comparison import open_comparison
from tranrepl.subscriber.base.sql_loader import SqlLoader
from tranrepl.subscriber.base.subscriber import Subscriber
from tranrepl.subscriber.capabilities import Capabilities
from tranrepl.subscriber.comparison import SubscriberComparison
from tranrepl.subscriber.subscription import SubscriptionKey

APPLIES = "tranrepl_applies"
"""Execution option of a connection whose transactions will write."""


class SqlDialect(Dialect):
    """A database that SQLAlchemy knows, by statements, and by procedures where it has them."""

    def __init__(self, database: SqlDatabase) -> None:
        self._database = database

    @property
    def capabilities(self) -> Capabilities:
        return self._database.capabilities

    def unused_options(self, connection: Connection) -> Mapping[str, str]:
        return self._database.unused_options(connection)

    @contextmanager
    def subscriber(
        self, connection: Connection, key: SubscriptionKey, application_name: str, *, writes: bool = False
    ) -> Iterator[Subscriber]:
        # No standard has a place for it.
        del application_name
        with self._connected(connection) as session:
            database = self._database.of_server(session)
            yield Subscriber(session.execution_options(**{APPLIES: writes}), database, key)

    @contextmanager
    def applier(
        self,
        connection: Connection,
        key: SubscriptionKey,
        articles: Mapping[int, RegisteredArticle],
        options: ApplierOptions = AS_CONFIGURED,
    ) -> Iterator[SqlApplier]:
        where = f"Subscriber {key.subscription}"
        with translated_errors(where, self._database), self._connected(connection) as session:
            database = self._database.of_server(session)
            if options.not_for_replication:
                for problem in database.not_for_replication_problems(session, where):
                    raise problem
            applying = session.execution_options(**{APPLIES: True})
            database.configure_session(applying, options)
            yield SqlApplier(applying, database, key, articles, options)

    @contextmanager
    def loader(
        self, connection: Connection, key: SubscriptionKey, snapshot: str, options: ApplierOptions = AS_CONFIGURED
    ) -> Iterator[SqlLoader]:
        where = f"Subscriber {key.subscription}"
        with translated_errors(where, self._database), self._connected(connection) as session:
            loading = session.execution_options(**{APPLIES: True})
            self._database.configure_session(loading, options)
            yield SqlLoader(loading, self._database.of_server(session), key, snapshot)

    def comparison(
        self, connection: Connection, key: SubscriptionKey, articles: Sequence[RegisteredArticle], sessions: int
    ) -> AbstractContextManager[SubscriberComparison]:
        where = f"Subscriber {key.subscription}"
        return open_comparison(partial(self._connected, connection), self._database, articles, sessions, where)

    @contextmanager
    def _connected(self, connection: Connection) -> Iterator[sa.Connection]:
        engine = self._database.engine(connection)
        try:
            session = engine.connect()
        except DBAPIError as error:
            # Neither the cause nor what came before it: they may show the password.
            raise self._database.refused(connection, error) from None
        except (TypeError, ValueError, OSError) as error:
            raise ConfigurationError(
                f"connection {connection}: {type(error).__name__}: its options are not those of the driver",
                remedy=f"allowed in its extra: what the driver's connect takes; found: {', '.join(connection.options)}",
            ) from None
        try:
            yield session
        finally:
            session.close()
            engine.dispose()
