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
    return article.source_definition.division is not None or article.truncate is Truncation.REPLICATE


def sharing_problems(
    where: str,
    tables: PublishedTables,
    copied: Iterable[SnapshotArticle],
    others: Sequence[Claim],
    *,
    schemas: bool,
) -> Iterator[ConfigurationError]:
    """Yield an error for the articles and another publication's on their tables, of which one deletes the other's rows
    with a TRUNCATE or a partition, or with a snapshot of those `copied`. `others`: of the Subscriber."""
    shared = []
    for settings, table in tables if others else ():
        article = registered_article(settings, table)
        for other in (it for it in others if it.is_on(article.destination, schemas=schemas)):
            if takes_whole_table(article):
                shared.append(_Shared(article, other, "a TRUNCATE of {ours}, or a partition that goes, deletes both's"))
            elif other.takes_whole_table:
                shared.append(
                    _Shared(article, other, "a TRUNCATE of {theirs}, or a partition that goes, deletes both's")
                )
            elif article.filter is not None and article.filter == other.filter:
                shared.append(_Shared(article, other, f"both have the row filter {article.filter}"))
    yield from _errors(where, [*shared, *_by_snapshots(copied, others, schemas=schemas)])


def snapshot_problems(
    where: str, articles: Iterable[SnapshotArticle], others: Sequence[Claim], *, schemas: bool
) -> Iterator[ConfigurationError]:
    """Yield an error for the articles whose snapshots would delete rows of another publication's."""
    yield from _errors(where, _by_snapshots(articles, others, schemas=schemas))


def _by_snapshots(articles: Iterable[SnapshotArticle], others: Sequence[Claim], *, schemas: bool) -> Iterator[_Shared]:
    for it in articles if others else ():
        if it.settings.pre_creation_cmd is PreCreation.DELETE and it.article.filter is not None:
            continue
        filtered = "a row filter" if it.article.filter is not None else "no row filter"
        said = f"a snapshot with `pre_creation_cmd: {it.settings.pre_creation_cmd}` and {filtered} deletes both's"
        for other in others:
            if other.is_on(it.article.destination, schemas=schemas):
                yield _Shared(it.article, other, said)


@dataclass(frozen=True, slots=True)
class _Shared:
    article: RegisteredArticle
    other: Claim
    why: str
    """Names the articles as `{ours}` and `{theirs}`."""


def _errors(where: str, shared: Iterable[_Shared]) -> Iterator[ConfigurationError]:
    """Yield one error for all articles that meet the same publication's for the same reasons."""
    reasons: dict[tuple[TableName, Claim], list[_Shared]] = {}
    for it in shared:
        reasons.setdefault((it.article.source, it.other), []).append(it)
    groups: dict[tuple[str, str, str], list[_Shared]] = {}
    for (_, other), them in reasons.items():
        why = "; ".join(it.why for it in them)
        groups.setdefault((other.publisher, other.publication, why), []).append(them[0])
    for (publisher, publication, why), group in groups.items():
        theirs = f"publication {publication} at {publisher}"
        first = group[0]
        if len(group) == 1:
            names = {
                "{ours}": f"article {first.article.source}",
                "{theirs}": f"article {first.other.article} of {theirs}",
            }
            what = f"table {first.article.destination} has rows of {names['{ours}']} and of {names['{theirs}']}"
        else:
            tables = ", ".join(str(it.article.destination) for it in group)
            names = {"{ours}": "one of this publication's articles", "{theirs}": "one of the other's articles"}
            what = f"{len(group)} tables have rows of this publication and of {theirs}, {tables}"
        for placeholder, name in names.items():
            why = why.replace(placeholder, name)
        articles = ", ".join(_literal(it.other.article) for it in group)
        at_which = f"= {articles}" if len(group) == 1 else f"IN ({articles})"
        release = (
            "UPDATE mssubscription_articles SET destination = NULL "  # noqa: S608 — it is to be read
            f"WHERE publisher = {_literal(publisher)} AND publication = {_literal(publication)} AND article {at_which};"
        )
        yield ConfigurationError(
            f"{where}: {what}: {why}",
            remedy=f"{_REMEDY}; where the other one does not exist any more, run there: {release}",
            article=str(first.article.source) if len(group) == 1 else None,
        )


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
