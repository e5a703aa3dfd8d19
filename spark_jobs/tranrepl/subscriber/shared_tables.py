"""Tables at a Subscriber that several publications deliver to, from one Publisher or several: each must leave the
others' rows alone.

Rows are found by their keys, but for a TRUNCATE, a partition that goes, and what a snapshot does first: those delete
the rows that the article's row filter lets through, or all of them where it has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tranrepl.errors import ConfigurationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import Method
from tranrepl.model.names import TableName, name_parts
from tranrepl.model.propagation import Truncation
from tranrepl.settings.publication import PreCreation
from tranrepl.settings.registration import PublishedTables, registered_article
from tranrepl.subscriber.snapshot import SnapshotArticle
from tranrepl.subscriber.subscription import SubscriptionKey

_REMEDY = (
    "let each article have a `filter` that tells its own rows, with `pre_creation_cmd: delete`; or, where its "
    "subscription takes no snapshots, `truncate: ignore` or `truncate: error`; or give one of them another "
    "`destination`"
)


@dataclass(frozen=True, slots=True)
class Claim:
    """An article that delivers to a table, as its setup wrote it down there."""

    publisher: str
    publisher_system: str
    publisher_db: str
    publication: str
    article: str
    destination: str
    filter: str | None
    takes_whole_table: bool

    def is_of(self, key: SubscriptionKey) -> bool:
        """Return whether it is of this publication; where its Publisher is not known yet, by the address."""
        if (self.publisher_db, self.publication) != (key.publisher_db, key.publication):
            return False
        if not key.publisher_system:
            return self.publisher == key.publisher
        return self.publisher_system == key.publisher_system

    def is_on(self, table: TableName, *, schemas: bool) -> bool:
        """Return whether it is on this table; where tables have no schemas, whatever schema either names."""
        if schemas:
            return self.destination == str(table)
        return name_parts(self.destination)[-1].lower() == table.table.lower()


def takes_whole_table(article: RegisteredArticle) -> bool:
    """Return whether commands of the article may delete other rows than those of its filter."""
    if article.file_names.divided:
        return True
    if article.filter is not None or article.del_cmd.method is Method.NONE:
        return False
    return article.definition.division is not None or article.truncate is Truncation.REPLICATE


def sharing_problems(
    where: str, tables: PublishedTables, others: Sequence[Claim], *, schemas: bool
) -> Iterator[ConfigurationError]:
    """Yield an error for each article and another publication's on its table, of which one deletes the other's rows
    with a TRUNCATE or a partition. `others`: of the Subscriber."""
    for settings, table in tables if others else ():
        article = registered_article(settings, table)
        for other in (it for it in others if it.is_on(article.destination, schemas=schemas)):
            if takes_whole_table(article) or other.takes_whole_table:
                whose = f"article {article.source}" if takes_whole_table(article) else _named(other)
                yield _error(where, article, other, f"a TRUNCATE of {whose}, or a partition that goes, deletes both's")
            elif article.filter is not None and article.filter == other.filter:
                yield _error(where, article, other, f"both have the row filter {article.filter}")


def snapshot_problems(
    where: str, articles: Iterable[SnapshotArticle], others: Sequence[Claim], *, schemas: bool
) -> Iterator[ConfigurationError]:
    """Yield an error for each article whose snapshot would delete rows of another publication's."""
    for it in articles if others else ():
        if it.settings.pre_creation_cmd is PreCreation.DELETE and it.article.filter is not None:
            continue
        filtered = "a row filter" if it.article.filter is not None else "no row filter"
        said = f"a snapshot with `pre_creation_cmd: {it.settings.pre_creation_cmd}` and {filtered} deletes both's"
        yield from (
            _error(where, it.article, other, said)
            for other in others
            if other.is_on(it.article.destination, schemas=schemas)
        )


def _named(claim: Claim) -> str:
    return f"article {claim.article} of publication {claim.publication} at {claim.publisher}"


def _error(where: str, article: RegisteredArticle, other: Claim, said: str) -> ConfigurationError:
    named = {"publisher": other.publisher, "publication": other.publication, "article": other.article}
    which = " AND ".join(f"{column} = {_literal(value)}" for column, value in named.items())
    release = f"UPDATE mssubscription_articles SET destination = NULL WHERE {which};"  # noqa: S608 — it is to be read
    return ConfigurationError(
        f"{where}: table {article.destination} has rows of article {article.source} and of {_named(other)}: {said}",
        remedy=f"{_REMEDY}; where the other one is no more, run there: {release}",
        article=str(article.source),
    )


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
