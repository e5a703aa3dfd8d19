"""The definition of each article that its table and procedures have at a Subscriber.

Source: `MSsubscription_articles`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import sqlalchemy as sa

from tranrepl.model.article import RegisteredArticle
from tranrepl.subscriber.replication_tables import ARTICLES, SNAPSHOTS, of_subscription
from tranrepl.subscriber.shared_tables import Claim, takes_whole_table
from tranrepl.subscriber.subscription import SubscriptionKey


class Definitions:
    """One subscription's rows, read and written in whatever transaction is open."""

    def __init__(self, session: sa.Connection, key: SubscriptionKey) -> None:
        self._session = session
        self._key = key
        self._mine = of_subscription(ARTICLES, key)

    def recorded(self) -> dict[str, int]:
        """Return the `article_id` of each article, by its source."""
        query = sa.select(ARTICLES.c.article, ARTICLES.c.article_id).where(self._mine)
        return {row.article: row.article_id for row in self._session.execute(query)}

    def record(self, articles: Iterable[RegisteredArticle]) -> None:
        """Record that the tables and procedures of these articles have their definitions."""
        columns = ARTICLES.c
        query = sa.select(
            columns.article, columns.article_id, columns.destination, columns.filter_clause, columns.whole_table
        ).where(self._mine)
        found = {row.article: row._asdict() for row in self._session.execute(query)}
        wanted = {str(it.source): it for it in articles}
        new = [self._row(it) for source, it in wanted.items() if source not in found]
        if new:
            self._session.execute(sa.insert(ARTICLES), new)
        for source, it in wanted.items():
            if source in found and found[source] != _defined(it):
                self._update(columns.article == source, it)

    def release(self, kept: Sequence[str]) -> None:
        """Record that the tables of other articles than these have no rows of the publication to come."""
        columns = ARTICLES.c
        others = sa.and_(self._mine, columns.article.not_in(kept), columns.destination.is_not(None))
        self._session.execute(sa.update(ARTICLES).where(others).values(destination=None))

    def claims(self) -> list[Claim]:
        """Return what other publications deliver here."""
        columns = ARTICLES.c
        query = sa.select(
            columns.publisher,
            columns.publisher_system,
            columns.publisher_db,
            columns.publication,
            columns.article,
            columns.destination,
            columns.filter_clause,
            columns.whole_table,
        ).where(columns.destination.is_not(None))
        found = dict.fromkeys(Claim(*row) for row in self._session.execute(query))
        return [it for it in found if not it.is_of(self._key)]

    def move(self, old: RegisteredArticle, new: RegisteredArticle | None) -> None:
        """Record that an article passed from one definition to the next; None where it ends. Idempotent."""
        query = sa.select(ARTICLES.c.article).where(self._mine, ARTICLES.c.article_id == old.article_id)
        name = self._session.execute(query).scalar_one_or_none()
        if name is None:
            return
        tables = (ARTICLES, SNAPSHOTS)
        if new is None:
            for table in tables:
                self._session.execute(
                    sa.delete(table).where(of_subscription(table, self._key), table.c.article == name)
                )
            return
        if name != str(new.source):
            for table in tables:
                self._exchange(table, name, str(new.source))
        self._update(ARTICLES.c.article == str(new.source), new)

    def _exchange(self, table: sa.Table, name: str, other: str) -> None:
        """Give an article another name, and whichever has that, its own: it has ended, or is renamed later."""
        for before, now in _exchanged(name, other):
            named = sa.and_(of_subscription(table, self._key), table.c.article == before)
            self._session.execute(sa.update(table).where(named).values(article=now))

    def _update(self, where: sa.ColumnElement[bool], article: RegisteredArticle) -> None:
        values = sa.update(ARTICLES).values(**_defined(article), time=sa.func.current_timestamp())
        self._session.execute(values.where(self._mine, where))

    def _row(self, article: RegisteredArticle) -> dict[str, object]:
        key = self._key
        return {
            "publisher": key.publisher,
            "publisher_system": key.publisher_system,
            "publisher_db": key.publisher_db,
            "publication": key.publication,
            "subscription": key.subscription,
            **_defined(article),
        }


def _defined(article: RegisteredArticle) -> dict[str, object]:
    return {
        "article": str(article.source),
        "article_id": article.article_id,
        "destination": str(article.destination),
        "filter_clause": article.filter,
        "whole_table": takes_whole_table(article),
    }


_NO_ARTICLE = "renamed"
"""What no article is named: it has no schema."""


def _exchanged(name: str, other: str) -> list[tuple[str, str]]:
    """Return what is renamed to what, one after the other."""
    return [(name, _NO_ARTICLE), (other, name), (_NO_ARTICLE, other)]
