"""Which definition of each article its table and procedures stand at, at a PostgreSQL Subscriber.

Source: `MSsubscription_articles`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from psycopg import sql

from tranrepl.model.article import RegisteredArticle
from tranrepl.postgres.session import Session
from tranrepl.subscriber.exchanged_names import exchanged
from tranrepl.subscriber.postgres.replication_tables import ARTICLES, MINE, SNAPSHOTS, has_table, key_values
from tranrepl.subscriber.shared_tables import Claim, takes_whole_table
from tranrepl.subscriber.subscription import SubscriptionKey


class Definitions:
    """One subscription's rows, read and written in whatever transaction is open."""

    def __init__(self, session: Session, key: SubscriptionKey) -> None:
        self._session = session
        self._key = key

    def recorded(self) -> dict[str, int]:
        """Return the `article_id` of each article, by its source; none where an earlier version made the tables."""
        if not has_table(self._session, ARTICLES):
            return {}
        rows = self._session.execute(
            sql.SQL("SELECT article, article_id FROM {} WHERE {}").format(ARTICLES, MINE), key_values(self._key)[1:]
        )
        return dict(rows.fetchall())

    def record(self, articles: Iterable[RegisteredArticle]) -> None:
        """Record that the tables and procedures of these articles stand at their definitions."""
        wanted = [(str(it.source), it.article_id, *_claimed(it)) for it in articles]
        self._session.execute(
            sql.SQL(
                "INSERT INTO {} AS known (publisher, publisher_system, publisher_db, publication, subscription, "
                "article, article_id, destination, filter_clause, whole_table) SELECT %s, %s, %s, %s, %s, wanted.* "
                "FROM unnest(%s::text[], %s::int[], %s::text[], %s::text[], %s::bool[]) wanted "
                "ON CONFLICT (publisher_system, publisher_db, publication, subscription, article) "
                "DO UPDATE SET article_id = excluded.article_id, destination = excluded.destination, "
                "filter_clause = excluded.filter_clause, whole_table = excluded.whole_table, time = now() "
                "WHERE (known.article_id, known.destination, known.filter_clause, known.whole_table) IS DISTINCT FROM "
                "(excluded.article_id, excluded.destination, excluded.filter_clause, excluded.whole_table)"
            ).format(ARTICLES),
            [*key_values(self._key), *([list(it) for it in zip(*wanted, strict=True)] or [[]] * 5)],
        )

    def release(self, kept: Sequence[str]) -> None:
        """Record that the tables of other articles than these have no rows of the publication to come."""
        self._session.execute(
            sql.SQL(
                "UPDATE {} SET destination = NULL WHERE {} AND article <> ALL (%s) AND destination IS NOT NULL"
            ).format(ARTICLES, MINE),
            [*key_values(self._key)[1:], list(kept)],
        )

    def claims(self) -> list[Claim]:
        """Return what other publications deliver here."""
        if not has_table(self._session, ARTICLES):
            return []
        rows = self._session.execute(
            sql.SQL(
                "SELECT DISTINCT publisher, publisher_system, publisher_db, publication, article, destination, "
                "filter_clause, whole_table FROM {} WHERE destination IS NOT NULL"
            ).format(ARTICLES)
        )
        return [claim for claim in (Claim(*row) for row in rows) if not claim.is_of(self._key)]

    def move(self, old: RegisteredArticle, new: RegisteredArticle | None) -> None:
        """Record that an article passed from one definition to the next; None where it ends. Idempotent."""
        mine = key_values(self._key)[1:]
        row = self._session.execute(
            sql.SQL("SELECT article FROM {} WHERE {} AND article_id = %s").format(ARTICLES, MINE),
            [*mine, old.article_id],
        ).fetchone()
        if row is None:
            return
        (name,) = row
        tables = [ARTICLES, *([SNAPSHOTS] if has_table(self._session, SNAPSHOTS) else [])]
        if new is None:
            for table in tables:
                self._session.execute(
                    sql.SQL("DELETE FROM {} WHERE {} AND article = %s").format(table, MINE), [*mine, name]
                )
            return
        if name != str(new.source):
            for table in tables:
                self._exchange(table, name, str(new.source))
        self._session.execute(
            sql.SQL(
                "UPDATE {} SET article_id = %s, destination = %s, filter_clause = %s, whole_table = %s, time = now() "
                "WHERE {} AND article = %s"
            ).format(ARTICLES, MINE),
            [new.article_id, *_claimed(new), *mine, str(new.source)],
        )

    def _exchange(self, table: sql.Identifier, name: str, other: str) -> None:
        """Give an article another name, and whichever has that, its own: it has ended, or is renamed later."""
        for before, now in exchanged(name, other):
            self._session.execute(
                sql.SQL("UPDATE {} SET article = %s WHERE {} AND article = %s").format(table, MINE),
                [now, *key_values(self._key)[1:], before],
            )


def _claimed(article: RegisteredArticle) -> tuple[str, str | None, bool]:
    return str(article.destination), article.filter, takes_whole_table(article)
