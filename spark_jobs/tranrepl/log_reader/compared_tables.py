"""Tables compared with articles, for what the log does not say: which tables were rewritten, or are not published any
more; and changes without their old rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256

from tranrepl import __version__, garbage_collection
from tranrepl.distributor.database import DistributionDatabase, PublicationRecord, UnknownRows
from tranrepl.distributor.stale_articles import reinitialize_or_stop
from tranrepl.errors import ARTICLE_DOES_NOT_EXIST, ConfigurationError, NotReplicatedError
from tranrepl.log_reader.opening import OpenLogReader
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.names import TableName
from tranrepl.model.position import Position
from tranrepl.publisher.publisher import Publisher
from tranrepl.schema.redefinition import unseen_change
from tranrepl.settings.publication import Partitions, Publication
from tranrepl.settings.registered_names import with_current_names


@dataclass(frozen=True, slots=True)
class ComparedState:
    """The state in which tables and articles were found alike: where it is the same one, they need not be compared
    again, which takes seconds for thousands of articles. It is of the articles as registered before they are read."""

    opened: OpenLogReader
    publication: Publication
    state: str

    @classmethod
    def now(cls, opened: OpenLogReader, publication: Publication) -> ComparedState:
        return cls(opened, publication, opened.database.articles.state(opened.record))

    def with_tables(self) -> str | None:
        """Return a digest of all that a comparison with the tables depends on, as these are now; None where the
        Publisher does not say in short how they are."""
        with ThreadPoolExecutor(1) as server:
            asked = server.submit(self.opened.publisher.catalogue_state)
            # Meanwhile: of thousands of articles, each takes a good part of a tenth of a second.
            settings = self.publication.model_dump_json(exclude_defaults=True)
        catalogue = asked.result()
        if catalogue is None:
            return None
        parts = (__version__, settings, self.state, self.opened.record.read_from, catalogue)
        return sha256(repr(parts).encode()).hexdigest()

    def found_alike(self, state: str | None, articles: Iterable[RegisteredArticle]) -> None:
        """Register a state, of before the comparison, in which there was no difference.

        Not where the next comparison has something to do all the same: what has the former name of a renamed table is
        asked about each time, and partitions that are gone are forgotten once the log was read.
        """
        if state is not None and not any(map(_is_to_be_asked_about, articles)):
            self.opened.database.publications.set_compared(self.opened.record, state)


def _is_to_be_asked_about(article: RegisteredArticle) -> bool:
    partitions = article.source_file.partitions if article.source_file is not None else None
    return article.source != article.file_names.source or any(it.gone for it in (partitions or {}).values())


@garbage_collection.paused()
def differing(opened: OpenLogReader, articles: Sequence[RegisteredArticle]) -> bool:
    """Return whether a table is another one now than its article, or was rewritten."""
    try:
        files = opened.publisher.files(articles)
    except ConfigurationError:
        return True
    return any(
        unseen_change(it.model_copy(update={"source_file": files[it.source_object_id].of(_ordinals(it))}), it)
        is not None
        for it in articles
    )


def _ordinals(article: RegisteredArticle) -> list[int]:
    return [column.ordinal for column in article.columns]


def compare_tables(
    opened: OpenLogReader,
    publication: Publication,
    articles: Sequence[RegisteredArticle],
    read_to: Position,
    warn: Callable[[Sequence[str]], object],
) -> bool:
    """Compare tables and articles once the log was read to its end, `read_to`, and do what the log does not ask for;
    `warn` takes what was done, in words. Returns whether there was nothing to do.

    Raises ConfigurationError where a table does not fit its article any more, NotReplicatedError for the first one that
    the file names and that is not replicated.
    """
    named = with_current_names(publication, articles)
    done = _reinitialize_rewritten(opened, named, articles, read_to)
    warn(done)
    for problem in not_replicated(opened.publisher, opened.database, opened.record, publication, articles):
        raise problem
    return not done


@garbage_collection.paused()
def _reinitialize_rewritten(
    opened: OpenLogReader, publication: Publication, articles: Sequence[RegisteredArticle], read_to: Position
) -> list[str]:
    """Reinitialize or stop each article whose table was rewritten, or has other partitions with rows. The log is read
    up to `read_to`. Returns what was done, in words.

    Raises ConfigurationError where a table does not fit its article any more.
    """
    files = opened.publisher.files(articles)
    # After the look: what is gone by now has no row in the log from there on.
    end_of_log = opened.publisher.end_of_log()
    done: list[str] = []
    looked_at = []
    without_partitions = {it.source for it in publication.articles if it.partitions is Partitions.NONE}
    for article in articles:
        file = files[article.source_object_id].of(_ordinals(article))
        file = file.with_gone(article.source_file).without_read(read_to, end_of_log)
        now = article.model_copy(update={"source_file": file})
        unseen = unseen_change(now, article)
        if unseen is not None:
            done += reinitialize_or_stop(
                opened.database, opened.record, publication, article.source, UnknownRows(unseen)
            )
            now = now.model_copy(update={"begins_after": opened.publisher.end_of_log()})
        if article.source not in without_partitions:
            done += _new_partitions(opened, publication, article, now)
        if now != article:
            looked_at.append(now)
    # After what became of their rows: a job that dies in between finds the same again.
    if looked_at:
        opened.database.articles.renew(opened.record, looked_at)
    return done


def _new_partitions(
    opened: OpenLogReader, publication: Publication, known: RegisteredArticle, now: RegisteredArticle
) -> list[str]:
    """Return what to do for partitions that Subscribers are to have too, where the log does not announce them."""
    if known.source_file is None or now.source_file is None:
        return []
    new = [str(it.table) for number, it in now.source_file.attached.items() if number not in known.source_file.attached]
    if not new or (publication.replicate_ddl and opened.publisher.schema_changes.why_not_captured() is None):
        return []
    return [f"article {now.source}: partition {', '.join(new)} is new: `tranrepl setup FILE` makes it at Subscribers"]


def reinitialize_without_old_rows(
    opened: OpenLogReader, publication: Publication, article: RegisteredArticle, reason: str
) -> list[str] | None:
    """Reinitialize or stop an article where the log lacks old rows of its table: its changes before now that cannot be
    read are skipped. Returns what was done, in words; None where changes that are made now lack old rows too."""
    if not opened.publisher.logs_what_is_needed(article):
        return None
    done = reinitialize_or_stop(opened.database, opened.record, publication, article.source, UnknownRows(reason))
    begun = article.model_copy(update={"begins_after": opened.publisher.end_of_log()})
    opened.database.articles.renew(opened.record, [begun])
    return done


def not_replicated(
    publisher: Publisher,
    database: DistributionDatabase,
    record: PublicationRecord,
    publication: Publication,
    articles: Sequence[RegisteredArticle],
) -> Iterator[NotReplicatedError]:
    """Yield an error for each table that the file names and that is not replicated: it was dropped, taken out of the
    Publisher's publication, or renamed, and another one has its name by now."""
    ended = database.articles.ended(publication, record)
    by_source = {it.source: it for it in articles}
    renamed = {it.file_names.source: it for it in articles}
    outdated = [it for it in renamed if it not in by_source]
    there = publisher.describe([*ended, *outdated]) if ended or outdated else {}
    for source in ended:
        yield _ended(source, by_source.get(source), is_there=source in there)
    for source in outdated:
        if source in there and "view" not in there[source].kind:
            yield _replaced(source, renamed[source])


def _ended(source: TableName, successor: RegisteredArticle | None, *, is_there: bool) -> NotReplicatedError:
    """Return the error of an article that has ended. `successor`: another one, whose table has the name now."""
    if successor is not None:
        said = f"its table was dropped, and that of article {successor.file_names.source} has its name now"
        remedy = (
            f"take the article out of the file, and write `source: {source}` and `destination: "
            f"{successor.destination}` for {successor.file_names.source}; then `tranrepl setup FILE`"
        )
    elif is_there:
        said = "its table was dropped and made again, or taken out of the publication: its rows are not replicated"
        remedy = "`tranrepl setup FILE` replicates it again; `on_unknown_rows` says what becomes of the rows"
    else:
        said = "its table was dropped: nothing is replicated"
        remedy = "take the article out of the file, or make the table again; then `tranrepl setup FILE`"
    return NotReplicatedError(
        f"article {source}: {said}. The other articles continue",
        number=ARTICLE_DOES_NOT_EXIST,
        remedy=remedy,
        article=str(source),
    )


def _replaced(source: TableName, renamed: RegisteredArticle) -> NotReplicatedError:
    names = f"`source: {renamed.source}` and `destination: {renamed.destination}`"
    return NotReplicatedError(
        f"article {source}: its table was renamed to {renamed.source}, which is replicated, and another table has its "
        "name now, whose rows are not",
        number=ARTICLE_DOES_NOT_EXIST,
        remedy=f"write {names} in the file, and run `tranrepl setup FILE`; to replicate the other table in its place, "
        f"write `source: {source}` again after that, and run `tranrepl setup FILE` once more",
        article=str(source),
    )
