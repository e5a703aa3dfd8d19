"""PostgreSQL as a Subscriber: everything the interface asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tranrepl.article import RegisteredArticle
from tranrepl.connections import Connection
from tranrepl.postgres import connect, translated_errors
from tranrepl.subscriber.dialect import Capabilities, NameCase, SubscriptionKey
from tranrepl.subscriber.postgres import PostgresSubscriber
from tranrepl.subscriber.postgres_apply import PostgresApplier
from tranrepl.subscriber.postgres_procedures import LONGEST_NAME, MOST_ARGUMENTS


class PostgresDialect:
    """Over psycopg, commands staged by COPY."""

    capabilities = Capabilities(
        title="PostgreSQL",
        procedures=True,
        most_arguments=MOST_ARGUMENTS,
        longest_name=LONGEST_NAME,
        name_case=NameCase.SENSITIVE,
        schemas=True,
    )

    @contextmanager
    def subscriber(
        self, connection: Connection, key: SubscriptionKey, application_name: str
    ) -> Iterator[PostgresSubscriber]:
        with connect(connection, application_name, autocommit=True) as session:
            yield PostgresSubscriber(session, key)

    @contextmanager
    def applier(
        self, connection: Connection, key: SubscriptionKey, articles: Mapping[int, RegisteredArticle]
    ) -> Iterator[PostgresApplier]:
        with (
            translated_errors(f"Subscriber {key.subscription}"),
            connect(connection, f"tranrepl {key.subscription}") as session,
        ):
            # Nothing is lost by it: the watermark is lost with the commands. The last commit waits for the disk.
            session.execute("SET synchronous_commit = off")
            applier = PostgresApplier(session, key, articles)
            session.commit()
            yield applier
