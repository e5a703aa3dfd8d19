"""New definitions as the log reader meets them: by schema changes in the log, and by edited files, of which setup has
written a message into it. Each gets a number (`article_id`), and the changes to the Subscribers that it asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tranrepl.distributor.database import (
    DistributionDatabase,
    PublicationRecord,
    StoredSchemaChange,
    StoredScript,
    UnknownRows,
)
from tranrepl.distributor.stale_articles import reinitialize_or_stop
from tranrepl.errors import InternalError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.pending_definitions import PendingDefinitions
from tranrepl.model.schema_change import SETUP_TAG, SchemaChange
from tranrepl.publisher.log_range import SchemaReading
from tranrepl.publisher.log_read import LogRead
from tranrepl.schema.redefinition import DESTINATION_CHANGED, late_columns, redefined, steps, why_unknown
from tranrepl.settings.publication import Publication
from tranrepl.settings.registered_names import with_current_names

_FIRST_IDS = 4


@dataclass(frozen=True, slots=True)
class Redefinition:
    """What pending definitions make of the articles, from the next transaction on that is read."""

    digest: str
    articles: tuple[RegisteredArticle, ...]
    """Those that the log is read by then."""
    definitions: tuple[RegisteredArticle, ...]
    """New ones, and those in force of which more is known."""
    changes: tuple[SchemaChange, ...]
    notices: tuple[str, ...]

    def of_reading(self, read: LogRead) -> LogRead:
        """Return the account of a reading with what it began with."""
        definitions = {it.article_id: it for it in (*self.definitions, *read.definitions)}
        update = {"definitions": tuple(definitions.values()), "notices": (*self.notices, *read.notices)}
        return read.model_copy(update=update)


class SchemaFollower:
    """Follows the definitions of one run of the log reader: schema changes, where the publication replicates them, and
    what setup wrote into the log. `collation` names a collation of the Publisher."""

    def __init__(
        self,
        publication: Publication,
        database: DistributionDatabase,
        record: PublicationRecord,
        collation: Callable[[int], str | None],
    ) -> None:
        self._publication = publication
        self._database = database
        self._record = record
        self._collation = collation
        self._ids: tuple[int, ...] = ()
        self._taken = 0
        self._pending: tuple[PendingDefinitions, ...] = ()
        self.redefinition: Redefinition | None = None
        """What the next reading begins with."""

    @property
    def reading(self) -> SchemaReading:
        """How the next reading treats schema changes."""
        return SchemaReading(
            self._ids,
            follows=self._publication.replicate_ddl,
            definitions=tuple(it.digest for it in self._pending),
            begins_with=() if self.redefinition is None else self.redefinition.changes,
        )

    def take_ids(self) -> None:
        """Take numbers for definitions, each time more of them: one transaction may make thousands, and each reading
        of it that has too few is begun again."""
        count = max(_FIRST_IDS, 2 * self._taken)
        self._ids += self._database.articles.reserve_ids(count)
        self._taken += count

    def look_for_pending(self, articles: Sequence[RegisteredArticle]) -> None:
        """Look which definitions setup has written down; the next reading begins with those that hold at once."""
        known = () if self.redefinition is None else (self.redefinition.digest,)
        self._pending = _after(self._database.pending_definitions.of(self._record), *known)
        at_once = [it for it in self._pending if it.at_once and it.in_log]
        if at_once:
            self.redefine(at_once[-1].digest, articles)

    def redefine(self, digest: str, articles: Sequence[RegisteredArticle]) -> None:
        """Let the next reading begin with the pending definitions of this digest. `articles` are those in force."""
        pending = next((it for it in self._pending if it.digest == digest), None)
        if pending is None:
            raise InternalError(f"the log reader came to definitions {digest} twice")
        self._pending = _after(self._pending, digest)
        begun = self.redefinition or Redefinition(digest, tuple(articles), (), (), ())
        wanted = {it.source_object_id: it for it in pending.articles}
        by_id = {it.article_id: it for it in begun.articles}
        changes, definitions, notices = [*begun.changes], {it.article_id: it for it in begun.definitions}, []
        for before in begun.articles:
            if before.source_object_id not in wanted:
                continue
            new = redefined(before, wanted[before.source_object_id])
            if new is None:
                notices.append(
                    f"article {before.source}: its table was altered while setup looked at it, and its settings stay "
                    "as they were; run `tranrepl setup FILE` again"
                )
                continue
            found = self._changes(before, new, wanted[before.source_object_id])
            changes += [it for it, _ in found]
            passed = [it for _, it in found] or [new]
            definitions |= {it.article_id: it for it in passed}
            del by_id[before.article_id]
            by_id[passed[-1].article_id] = passed[-1]
        self.redefinition = Redefinition(
            digest,
            tuple(sorted(by_id.values(), key=lambda it: it.article_id)),
            tuple(definitions.values()),
            tuple(changes),
            (*begun.notices, *notices),
        )

    def _changes(
        self, before: RegisteredArticle, new: RegisteredArticle, wanted: RegisteredArticle
    ) -> list[tuple[SchemaChange, RegisteredArticle]]:
        """Return the changes that lead to a new definition, each with the definition after it; none where commands of
        the one can be read as commands of the other, and the rows are known."""
        follows = self._publication.replicate_ddl
        reason = why_unknown(before, new, follows=follows)
        if reason is None and new.same_definition(before):
            return []
        if reason is not None:
            new = new.model_copy(update={"begins_after": max(before.begins_after, wanted.begins_after)})
        columns = late_columns(before, new, self._collations(new)) if follows else ()
        numbers = iter(self._database.articles.reserve_ids(2))
        return [(change, after) for _, change, after in steps(before, new, columns, reason, numbers)]

    def _collations(self, article: RegisteredArticle) -> Mapping[int, str]:
        numbers = {it.collation_oid for it in article.source_definition.columns if it.collation_oid is not None}
        return {number: name for number in numbers if (name := self._collation(number)) is not None}

    def reinitialize(self, read: LogRead, articles: Sequence[RegisteredArticle]) -> list[str]:
        """Reinitialize or stop articles whose rows a schema change leaves unknown; what was done, in words. Before the
        change is registered: a job that dies in between does it again."""
        done: list[str] = []
        publication = with_current_names(self._publication, articles)
        # Under the names that are registered: what is known of an article follows its new name with the batch.
        sources = {it.source_object_id: it.source for it in articles}
        by_id = {it.article_id: it for it in (*articles, *read.definitions)}
        for it in read.schema_changes:
            if it.change.rows_unknown is not None:
                source = sources[by_id[it.change.article_id].source_object_id]
                unknown = UnknownRows(it.change.rows_unknown, _replaced_filter(it.change, by_id))
                concerns = partial(_concerns, it.change, by_id)
                done += reinitialize_or_stop(self._database, self._record, publication, source, unknown, concerns)
        return done

    def begin_again(self, articles: Sequence[RegisteredArticle]) -> None:
        """Look again what the next reading begins with: articles were changed."""
        self.redefinition = None
        self.look_for_pending(articles)

    def begun_by(self, read: LogRead) -> Redefinition | None:
        """Return what a reading began with; None where there was no transaction to begin with."""
        return self.redefinition if read.transactions else None

    def registered(self, articles: Sequence[RegisteredArticle], read: LogRead) -> list[RegisteredArticle]:
        """Return the articles in force once the reading is registered."""
        if self.begun_by(read) is not None:
            self.redefinition = None
        used = {it.article_id for it in read.definitions}
        self._ids = tuple(it for it in self._ids if it not in used)
        gone = {it.change.article_id for it in read.schema_changes}
        latest = {it.article_id: it for it in [*articles, *read.definitions] if it.article_id not in gone}
        return sorted(latest.values(), key=lambda it: it.article_id)


def _after(pending: Sequence[PendingDefinitions], *digests: str) -> tuple[PendingDefinitions, ...]:
    """Return the pending definitions behind those of a digest."""
    places = [at for at, it in enumerate(pending, start=1) if it.digest in digests]
    return tuple(pending[max(places, default=0) :])


def _concerns(change: SchemaChange, by_id: Mapping[int, RegisteredArticle], subscription: str) -> bool:
    """Return whether a subscription's rows are not known after the change: not where its own table stays."""
    before, now = by_id[change.article_id], by_id.get(change.new_article_id or 0)
    if change.rows_unknown != DESTINATION_CHANGED or now is None:
        return True
    return before.at(subscription).destination != now.at(subscription).destination


def _replaced_filter(change: SchemaChange, by_id: Mapping[int, RegisteredArticle]) -> str | None:
    """Return the row filter that setup replaced, of which Subscribers may have rows; None where it replaced none."""
    before, now = by_id[change.article_id], by_id.get(change.new_article_id or 0)
    if change.tag != SETUP_TAG or now is None or now.filter == before.filter:
        return None
    return before.filter or "true"


def stored_scripts(read: LogRead) -> list[StoredScript]:
    """Return the scripts as they are registered."""
    return [StoredScript(bytes.fromhex(it.xact_seqno), it.command_id, it.name, it.digest) for it in read.scripts]


def stored(read: LogRead) -> list[StoredSchemaChange]:
    """Return the schema changes as they are registered."""
    return [StoredSchemaChange(bytes.fromhex(it.xact_seqno), it.command_id, it.change) for it in read.schema_changes]
