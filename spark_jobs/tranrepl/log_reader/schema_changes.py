"""Schema changes that a reading of the log met: numbers for the definitions they make, and what they ask for."""

from __future__ import annotations

from collections.abc import Sequence

from tranrepl.distributor.database import (
    DistributionDatabase,
    PublicationRecord,
    StoredSchemaChange,
    StoredScript,
    UnknownRows,
)
from tranrepl.distributor.stale_articles import reinitialize_or_stop
from tranrepl.model.article import RegisteredArticle
from tranrepl.publisher.log_range import SchemaReading
from tranrepl.publisher.log_read import LogRead
from tranrepl.settings.following import follow
from tranrepl.settings.publication import Publication

_FIRST_IDS = 4


class SchemaFollower:
    """Follows the schema changes of one run of the log reader; none, where the publication does not replicate them."""

    def __init__(self, publication: Publication, database: DistributionDatabase, record: PublicationRecord) -> None:
        self._publication = publication
        self._database = database
        self._record = record
        self._ids: tuple[int, ...] = ()
        self._taken = 0

    @property
    def reading(self) -> SchemaReading | None:
        """How the next reading treats schema changes."""
        return SchemaReading(self._ids) if self._publication.replicate_ddl else None

    def take_ids(self) -> None:
        """Take numbers for definitions, each time more of them: one transaction may make thousands, and each reading
        of it that has too few is begun again."""
        count = max(_FIRST_IDS, 2 * self._taken)
        self._ids += self._database.articles.reserve_ids(count)
        self._taken += count

    def reinitialize(self, read: LogRead, articles: Sequence[RegisteredArticle]) -> list[str]:
        """Reinitialize or stop articles whose rows a schema change leaves unknown; what was done, in words. Before the
        change is registered: whoever dies in between does it again."""
        done: list[str] = []
        publication = follow(self._publication, articles)
        # Under the names that are registered: what is known of an article follows its new name with the batch.
        sources = {it.source_object_id: it.source for it in articles}
        tables = {it.article_id: it.source_object_id for it in (*articles, *read.definitions)}
        for it in read.schema_changes:
            if it.change.rows_unknown is not None:
                done += reinitialize_or_stop(
                    self._database,
                    self._record,
                    publication,
                    sources[tables[it.change.article_id]],
                    UnknownRows(it.change.rows_unknown),
                )
        return done

    def registered(self, articles: Sequence[RegisteredArticle], read: LogRead) -> list[RegisteredArticle]:
        """Return the articles in force once the reading is registered."""
        used = {it.article_id for it in read.definitions}
        self._ids = tuple(it for it in self._ids if it not in used)
        gone = {it.change.article_id for it in read.schema_changes}
        latest = {it.article_id: it for it in [*articles, *read.definitions] if it.article_id not in gone}
        return sorted(latest.values(), key=lambda it: it.article_id)


def stored_scripts(read: LogRead) -> list[StoredScript]:
    """Return the scripts as they are registered."""
    return [StoredScript(bytes.fromhex(it.xact_seqno), it.command_id, it.name, it.digest) for it in read.scripts]


def stored(read: LogRead) -> list[StoredSchemaChange]:
    """Return the schema changes as they are registered."""
    return [StoredSchemaChange(bytes.fromhex(it.xact_seqno), it.command_id, it.change) for it in read.schema_changes]
