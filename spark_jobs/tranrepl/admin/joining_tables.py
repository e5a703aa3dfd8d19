"""Tables that a run publishes by itself, as setup would: those that were dropped and made again, and new ones of a
pattern with `new_tables: join`; those also while continuous agents run."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Event, Thread

from tranrepl.admin.check import Checked, check
from tranrepl.admin.setup import set_up
from tranrepl.distributor.stale_articles import waits_for_snapshot
from tranrepl.errors import ReplicationError
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.retry import attempt
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.names import TableName
from tranrepl.publisher.publisher import Publisher
from tranrepl.settings.publication import NewTables, Publication, SyncType, of_pattern
from tranrepl.settings.registered_names import agrees, file_sources, with_registered
from tranrepl.settings.registration import registered_article
from tranrepl.topology import Topology

Say = Callable[[str], None]
_APPLICATION = "tranrepl run"
LOOKED_EVERY_SECONDS = 3.0
"""How often continuous agents look for new tables."""
_LONGEST_PAUSE_SECONDS = 60.0
"""Between two looks, where what keeps a table from joining stays the same."""
_REST = 4
"""A look is followed by so many times its own duration, whoever creates how many tables."""
_WAITED_SECONDS = 60.0

log = logging.getLogger(__name__)


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
    changes = publisher.schema_changes
    return not publication.replicate_ddl and changes.made_by_setup and changes.why_not_captured() is None


@contextmanager
def joining_new_tables(
    topology: Callable[[], Topology], subscriptions: Sequence[str], take_snapshot: Callable[[str], JobResult], say: Say
) -> Iterator[None]:
    """Publish new tables of patterns, and give each of these subscriptions their rows, while continuous agents run.

    Agents go on meanwhile: to them, it is a setup and a snapshot beside them. Raises nothing.
    """
    joining = _Joining(topology, subscriptions, take_snapshot, say)
    thread = Thread(target=joining.look_again_and_again, name="tranrepl-new-tables", daemon=True)
    thread.start()
    try:
        yield
    finally:
        joining.over.set()
        thread.join(_WAITED_SECONDS)


@contextmanager
def no_tables_joining(topology: Topology) -> Iterator[None]:
    """Let no run publish new tables meanwhile, once those that one publishes by now are: of two that set up with lists
    of different age, the older list would end what the newer one begins."""
    with ExitStack() as held:
        # What is wrong there, setup says.
        with suppress(ReplicationError):
            database = held.enter_context(topology.distributor())
            record = database.publications.find(topology.publication.publication) if database.is_current() else None
            if record is not None:
                held.enter_context(database.publications.publishing_tables(record, waits=True))
        yield


@dataclass(slots=True)
class _Joining:
    topology: Callable[[], Topology]
    subscriptions: Sequence[str]
    take_snapshot: Callable[[str], JobResult]
    say: Say
    over: Event = field(default_factory=Event)
    _known: Topology | None = None
    _waiting: frozenset[str] = frozenset()
    """Subscriptions whose snapshot of what has joined is not taken yet."""
    _unfit: frozenset[str] | None = None
    """What was said of tables that cannot be published; None before the first look: setup has said that."""
    _published: set[int] = field(default_factory=set)
    """Tables that were published at any look, by their numbers at the Publisher."""

    def look_again_and_again(self) -> None:
        pause, before = 0.0, frozenset[str]()
        while not self.over.wait(pause):
            began = time.monotonic()
            said = self._look()
            for it in said:
                if it not in before:
                    self.say(it)
            # What fails in the same way is not worth the same work again and again.
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS) if said and before.issuperset(said) else LOOKED_EVERY_SECONDS
            pause, before = max(pause, _REST * (time.monotonic() - began)), frozenset(said)

    def _look(self) -> list[str]:
        """Publish what there is by now; return what is to be said of it."""
        said: list[str] = []
        try:
            self._publish(said)
            self._take_snapshots(said)
        except Exception as error:
            # It may have happened when tables were registered already.
            self._known, self._waiting = None, frozenset(self.subscriptions)
            if isinstance(error, ReplicationError):
                said.append(f"new tables are not published: {error}")
            else:
                log.exception("looking for new tables")
                said.append("new tables are not looked for")
        return said

    def _publish(self, said: list[str]) -> None:
        unfit: list[str] = []
        self._known = self._known or self.topology()
        if publish_new_tables(self._known, said.append, unfit.append, self._published):
            self._waiting = frozenset(self.subscriptions)
        now = frozenset(unfit)
        said += sorted(now - (now if self._unfit is None else self._unfit))
        self._unfit = now

    def _take_snapshots(self, said: list[str]) -> None:
        for name in sorted(self._waiting):
            if self.over.is_set():
                return
            error = attempt(partial(self.take_snapshot, name)).error
            if error is None:
                self._waiting -= {name}
            else:
                said.append(f"subscription {name}: {error.message}")


def publish_new_tables(
    topology: Topology, say: Say, say_unfit: Say | None = None, published: set[int] | None = None
) -> bool:
    """Set up tables that are not published yet and that a pattern with `new_tables: join` means; report those of other
    patterns. Return whether any were set up.

    Tables that cannot be published are left out, as setup does, which says why, as `say_unfit` is told; so are those
    that were `published`, to which those that are now are added: an edited file has taken them out since. Nothing is
    set up before setup was, where that would do anything else, or while the log reader waits for a person. Raises
    ReplicationError.
    """
    publication = topology.publication
    with topology.distributor() as database, ExitStack() as held:
        if not publication.has_patterns or not database.is_current():
            return False
        record = database.publications.find(publication.publication)
        known = frozenset[int]() if record is None else database.articles.tables(record)
        if published is not None:
            published |= known
        # Thousands of articles take seconds to read.
        if record is None or not known or not (found := _new_tables(topology, published or known, say_unfit)):
            return False
        # Setup by two runs at once, with lists of different age: the older one would end what the newer one begins.
        if not held.enter_context(database.publications.publishing_tables(record)):
            return False
        # An error is not to pass for no article: setup would end all of them.
        registered = database.articles.registered(record)
        names = set[TableName]().union(*({it.source, it.file_names.source} for it in registered))
        new = [it for it in found if it not in names]
        living = {it.subscription for it in database.subscriptions.living(record)}
        has_failed = database.history.log_reader_has_failed(record)
        with topology.publisher(_APPLICATION) as publisher:
            is_edited = bool(new) and _is_edited(publication, living, publisher)
        left, joining = ([it for it in new if _joins(publication, it) is joins] for joins in (False, True))
        if left:
            say(
                f"not published yet, though a pattern names them: {_listed(left)}; `tranrepl setup FILE` publishes them"
            )
        if joining and (is_edited or has_failed):
            first = "the file was edited, run `tranrepl setup FILE`" if is_edited else "the log reader has stopped"
            say(f"not published yet: {_listed(joining)}: {first}")
            return False
        return bool(joining) and _join(topology, registered, joining, say)


def _new_tables(topology: Topology, known: Collection[int], say_unfit: Say | None) -> list[TableName]:
    """Return the tables that can be published, that only patterns mean, and that are none of these, by their numbers at
    the Publisher."""
    publication = topology.publication
    patterns, own = publication.patterns, {it.source for it in publication.articles if it.pattern is None}
    with topology.publisher(_APPLICATION) as publisher:
        there = publisher.tables_in({it.source.schema for it in patterns})
        meant = {it for it, number in there.items() if number not in known and of_pattern(patterns, it) is not None}
        new = [it for it in publication.of_tables(meant - own).articles if it.source in meant - own]
        tables = publisher.describe([it.source for it in new]) if new else {}
        found = []
        for article in new:
            # One that is not described was dropped by now.
            if article.source in tables:
                problem = next(iter(publisher.article_problems(article, tables[article.source])), None)
                if problem is None:
                    found.append(article.source)
                elif say_unfit is not None:
                    say_unfit(f"not published: {problem}")
    return found


def _joins(publication: Publication, table: TableName) -> bool:
    pattern = publication.pattern_of(table)
    # Without a snapshot, nobody would bring the rows that are in the table by then.
    copied = all(it.sync_type is SyncType.AUTOMATIC for it in publication.subscriptions)
    return pattern is not None and pattern.new_tables is NewTables.JOIN and copied


def _join(topology: Topology, registered: Sequence[RegisteredArticle], joining: Sequence[TableName], say: Say) -> bool:
    """Set up these tables beside those that are registered. Return whether that was done."""
    publication = topology.publication
    named = publication.of_tables([*file_sources(publication, registered), *joining])
    named.require_own_destinations()
    checked = check(_with(topology, named))
    if checked.blocking:
        say(f"not published yet: {_listed(joining)}: {checked.blocking[0]}")
        return False
    known = {it.source: it for it in registered}
    found = {article.source for article, _ in checked.tables}
    if found == {*known, *joining} and _are_unchanged(checked, known):
        set_up(checked.topology, checked.tables, say)
        return True
    say(f"not published yet: {_listed(joining)}: another table was altered, and that is read or set up first")
    return False


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
