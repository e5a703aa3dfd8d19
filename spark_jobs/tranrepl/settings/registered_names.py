"""What a file means by its names: a pattern means the registered tables that match; source, columns and filter of an
article follow what is registered.

A file may name things as they were when setup last read it, or as they are now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter

from tranrepl.model.article import ArticleNames, RegisteredArticle
from tranrepl.model.names import TableName
from tranrepl.settings.publication import Article, Publication, of_pattern

_same = attrgetter("ins_cmd", "upd_cmd", "del_cmd", "update_policy", "truncate")


def by_file_source(registered: Iterable[RegisteredArticle]) -> Mapping[TableName, RegisteredArticle]:
    """Return the articles by the names that a file may have for their tables: that of now, and before it, where two
    articles share one, that which the file had when setup read it."""
    known = list(registered)
    return {it.source: it for it in known} | {it.file_names.source: it for it in known}


def agrees(article: Article, registered: RegisteredArticle | None) -> bool:
    """Return whether an article is registered as its file describes it."""
    if registered is None:
        return False
    before = registered.file_names
    return (
        article.destination_table == registered.destination
        and article.destinations == dict(registered.destinations)
        and _same(article) == _same(registered)
        and (article.filter == registered.filter or article.filter == before.filter)
        and (article.columns is None or set(article.columns) in (_columns(registered), set(before.columns or ())))
        and (
            set(article.lob_columns) == set(before.lob_columns)
            or set(article.lob_columns) == {it.name for it in registered.columns if it.lob}
        )
    )


def _columns(registered: RegisteredArticle) -> set[str]:
    return {it.name for it in registered.columns}


def with_registered(publication: Publication, registered: Iterable[RegisteredArticle]) -> Publication:
    """Return the publication with registered articles in the place of its patterns, under the names that setup read."""
    if not publication.has_patterns:
        return publication
    return publication.of_tables(file_sources(publication, registered))


def file_sources(publication: Publication, registered: Iterable[RegisteredArticle]) -> list[TableName]:
    """Return the names by which the file means the tables of registered articles: that which a table had when setup
    read the file, unless it has an entry of its own by the name of now, else that of now."""
    own, patterns = {it.source for it in publication.articles}, publication.patterns

    def named(before: TableName, now: TableName) -> TableName:
        by_pattern = now not in own and of_pattern(patterns, before) is not None
        return before if before in own or by_pattern else now

    return [named(it.file_names.source, it.source) for it in registered]


def with_current_names(publication: Publication, registered: Iterable[RegisteredArticle]) -> Publication:
    """Return the publication with the names of now in the place of those that the file has, and no patterns."""
    registered = list(registered)
    publication = with_registered(publication, registered)
    known = by_file_source(registered)
    return publication.model_copy(
        update={"articles": [_followed(it, known.get(it.source)) for it in publication.articles]}
    )


def _followed(article: Article, registered: RegisteredArticle | None) -> Article:
    if registered is None or not agrees(article, registered):
        return article
    now = registered_names(registered)
    return article.model_copy(
        update={
            "source": now.source,
            "destination": registered.destination,
            "columns": None if article.columns is None else list(now.columns or ()),
            "filter": now.filter,
            "lob_columns": list(now.lob_columns),
        }
    )


def edits(publication: Publication, registered: Iterable[RegisteredArticle]) -> dict[str, str]:
    """Return by article, as the file names it, what is to be edited in the file, since schema changes gave things
    other names."""
    known, found = list(registered), {}
    own = {it.source for it in publication.articles}
    publication = with_registered(publication, known)
    for article, now in zip(publication.articles, with_current_names(publication, known).articles, strict=True):
        wanted = []
        if article.source != now.source:
            wanted.append(f"`source: {now.source}` and `destination: {now.destination}`")
        if set(article.columns or ()) != set(now.columns or ()):
            wanted.append(f"`columns: [{', '.join(now.columns or ())}]`")
        if article.filter != now.filter:
            wanted.append(f"`filter: {now.filter}`")
        if set(article.lob_columns) != set(now.lob_columns):
            wanted.append(f"`lob_columns: [{', '.join(now.lob_columns)}]`")
        if wanted:
            entry = "write" if article.source in own else "give it an entry of its own: write"
            found[str(article.source)] = f"{entry} {', '.join(wanted)} into the file"
    return found


def asked_edit(article: str, edit: str) -> str:
    """Return an edit as a warning says it."""
    return f"article {article}: its table was altered: {edit}"


def put_back(article: Article, registered: RegisteredArticle) -> str | None:
    """Return what to write in the file again, so that the article is described as it is registered; None where it
    is."""
    now = registered_names(registered)
    before = registered.file_names
    written: list[str] = []
    source = article.source if article.source in (now.source, before.source) else before.source
    if source != article.source:
        written.append(f"`source: {source}`")
    if (article.destination or source) != registered.destination:
        written.append(f"`destination: {registered.destination}`")
    if article.destinations != dict(registered.destinations):
        written.append("the `destinations` as they were")
    if article.columns is not None and set(article.columns) not in (set(now.columns or ()), set(before.columns or ())):
        written.append("no `columns`" if before.columns is None else f"`columns: [{', '.join(before.columns)}]`")
    if article.filter not in (now.filter, before.filter):
        written.append("no `filter`" if before.filter is None else f"`filter: {before.filter}`")
    if set(article.lob_columns) not in (set(now.lob_columns), set(before.lob_columns)):
        written.append(f"`lob_columns: [{', '.join(before.lob_columns)}]`")
    if _same(article) != _same(registered):
        written.append("the other settings of the article as they were")
    return f"write {', '.join(written)} in the file again" if written else None


def new_edits(
    publication: Publication, before: Iterable[RegisteredArticle], now: Iterable[RegisteredArticle]
) -> dict[str, str]:
    """Return what is to be edited in the file now and was not before."""
    known = edits(publication, before)
    return {article: it for article, it in edits(publication, now).items() if it != known.get(article)}


def registered_names(registered: RegisteredArticle) -> ArticleNames:
    """Return the names as they are registered."""
    return ArticleNames(
        source=registered.source,
        columns=tuple(it.name for it in registered.columns),
        filter=registered.filter,
        lob_columns=tuple(it.name for it in registered.columns if it.lob),
    )
