"""Tables that a run publishes by itself, as setup would: those that were dropped and made again, and new ones of a
pattern with `new_tables: join`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

from tranrepl.admin.articles_of_file import registered_articles, with_tables
from tranrepl.admin.check import Checked, check
from tranrepl.admin.setup import set_up
from tranrepl.distributor.stale_articles import waits_for_snapshot
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.names import TableName
from tranrepl.publisher.publisher import Publisher
from tranrepl.settings.publication import NewTables, Publication, SyncType, of_pattern
from tranrepl.settings.registered_names import agrees, file_sources, with_registered
from tranrepl.settings.registration import registered_article
from tranrepl.topology import Topology

Say = Callable[[str], None]
_APPLICATION = "tranrepl run"


def replicate_again(topology: Topology, say: Say) -> None:
    """Set up the articles that have ended and whose tables were made again, where they get a snapshot.

    Nothing is done where that would register anything else: the file or another table is not as it is registered.
    Raises ReplicationError.
    """
    publication = topology.publication
    with topology.distributor() as database:
        record = database.publications.get(publication.publication)
        living = {it.subscription for it in database.subscriptions.living(record)}
        registered = {it.source: it for it in database.articles.active(publication, record)}
        ended, former = database.articles.ended(publication, record), database.articles.former(record)
    with topology.publisher(_APPLICATION) as publisher:
        if _is_edited(publication, living, publisher):
            return
    checked = check(_with(topology, with_registered(publication, registered.values())))
    if checked.blocking or not all(
        waits_for_snapshot(publication, source, it) for source in ended for it in publication.subscriptions
    ):
        return
    # A table that was taken out of the publication, and not dropped, was meant to be. Commands of one that was renamed
    # before are to be delivered first: a snapshot leaves out those of its own name alone.
    new = [(article, table, former.get(article.source)) for article, table in checked.tables]
    made_again = all(
        agrees(article, before) and before is not None and before.source_object_id != table.object_id
        for article, table, before in new
        if article.source not in registered
    )
    if made_again and _are_unchanged(checked, registered):
        set_up(checked.topology, checked.tables, say)


def _is_edited(publication: Publication, living: Collection[str], publisher: Publisher) -> bool:
    """Return whether setup would do more than for articles, as the file says it: end or begin a subscription, or stop
    capturing schema changes."""
    if living != {it.name for it in publication.subscriptions}:
        return True
    return not publication.replicate_ddl and publisher.schema_changes.why_not_captured() is None


def publish_new_tables(topology: Topology, say: Say) -> None:
    """Set up tables that are not published yet and that a pattern with `new_tables: join` means; report those of other
    patterns.

    Tables that cannot be published are passed over, as setup does, which says why. Nothing is set up before setup was,
    where that would do anything else, or while the log reader waits for a person. Raises ReplicationError.
    """
    publication = topology.publication
    with topology.distributor() as database, ExitStack() as held:
        if not publication.has_patterns or not database.is_current():
            return
        record = database.publications.find(publication.publication)
        known = frozenset[int]() if record is None else database.articles.tables(record)
        # Thousands of articles take seconds to read.
        if record is None or not known or not _names_others(topology, known):
            return
        # Setup by two runs at once, with lists of different age: the older one would end what the newer one begins.
        if not held.enter_context(database.publications.publishing_tables(record)):
            return
        registered = registered_articles(topology, database)
        living = {it.subscription for it in database.subscriptions.living(record)}
        has_failed = database.history.log_reader_has_failed(record)
        with topology.publisher(_APPLICATION) as publisher:
            new = _new_tables(publication, publisher, registered)
            is_edited = bool(new) and _is_edited(publication, living, publisher)
        left, joining = ([it for it in new if _joins(publication, it) is joins] for joins in (False, True))
        if left:
            say(
                f"not published yet, though a pattern names them: {_listed(left)}; `tranrepl setup FILE` publishes them"
            )
        if joining and (is_edited or has_failed):
            first = "the file was edited, run `tranrepl setup FILE`" if is_edited else "the log reader has stopped"
            say(f"not published yet: {_listed(joining)}: {first}")
        elif joining:
            _join(topology, registered, joining, say)


def _names_others(topology: Topology, known: Collection[int]) -> bool:
    """Return whether a pattern means a table that is none of these, by their numbers at the Publisher."""
    patterns = topology.publication.patterns
    with topology.publisher(_APPLICATION) as publisher:
        there = publisher.tables_in({it.source.schema for it in patterns})
    return any(number not in known and of_pattern(patterns, name) is not None for name, number in there.items())


def _new_tables(
    publication: Publication, publisher: Publisher, registered: Sequence[RegisteredArticle]
) -> list[TableName]:
    """Return the tables that can be published, that only patterns mean, and that are not registered."""
    known = {it.source for it in publication.articles}.union(*({it.source, it.file_names.source} for it in registered))
    new = [it for it in with_tables(publication, publisher, registered).articles if it.source not in known]
    tables = publisher.describe([it.source for it in new]) if new else {}
    fitting = [it for it in new if it.source in tables and not any(publisher.article_problems(it, tables[it.source]))]
    return [it.source for it in fitting]


def _joins(publication: Publication, table: TableName) -> bool:
    pattern = publication.pattern_of(table)
    # Without a snapshot, nobody would bring the rows that are in the table by then.
    copied = all(it.sync_type is SyncType.AUTOMATIC for it in publication.subscriptions)
    return pattern is not None and pattern.new_tables is NewTables.JOIN and copied


def _join(topology: Topology, registered: Sequence[RegisteredArticle], joining: Sequence[TableName], say: Say) -> None:
    publication = topology.publication
    names = [*file_sources(publication, registered), *joining]
    checked = check(_with(topology, publication.of_tables(names)))
    if checked.blocking:
        say(f"not published yet: {_listed(joining)}: {checked.blocking[0]}")
        return
    known = {it.source: it for it in registered}
    found = {article.source for article, _ in checked.tables}
    if found == {*known, *joining} and _are_unchanged(checked, known):
        set_up(checked.topology, checked.tables, say)
    else:
        say(f"not published yet: {_listed(joining)}: another table was altered, and that is read or set up first")


def _are_unchanged(checked: Checked, known: Mapping[TableName, RegisteredArticle]) -> bool:
    """Return whether each table that is registered is as it is registered."""
    return all(
        registered_article(article, table, known[article.source]).same_definition(known[article.source])
        for article, table in checked.tables
        if article.source in known
    )


def _with(topology: Topology, publication: Publication) -> Topology:
    return replace(topology, publication=publication)


def _listed(tables: Sequence[TableName]) -> str:
    return ", ".join(str(it) for it in tables)
