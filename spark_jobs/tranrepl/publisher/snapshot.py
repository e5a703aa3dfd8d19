"""A Publisher at one position of its log: several sessions read its rows, for a snapshot or a comparison."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from tranrepl.errors import ConfigurationError, TransientError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.catalogue import TableDescription
from tranrepl.model.comparison import Checksum, ColumnForm, ComparedEnd
from tranrepl.model.names import TableName
from tranrepl.model.position import Position

Values = list[str | None]
Key = tuple[str | None, ...]

_REGISTERING = (
    "`tranrepl log-reader FILE` registers the schema change; where it does not, because it was not captured, "
    "`tranrepl setup FILE` does"
)
_SETTING_UP = (
    "schema changes are not replicated (replicate_ddl: false): make the Subscribers' tables fit, as "
    "`tranrepl check FILE` says; then `tranrepl setup FILE` registers the change"
)


class UnregisteredError(TransientError):
    """A table is not as it is registered."""

    def __init__(self, message: str, article: str) -> None:
        super().__init__(message, remedy=_REGISTERING, article=article)


@contextmanager
def needing_registered_tables(*, replicate_ddl: bool) -> Iterator[None]:
    """Raise ConfigurationError in the place of UnregisteredError where schema changes are not replicated: then no log
    reader registers them, and trying again does not help."""
    try:
        yield
    except UnregisteredError as error:
        if replicate_ddl:
            raise
        raise ConfigurationError(error.message, remedy=_SETTING_UP, article=error.report.article) from error


@dataclass(frozen=True, slots=True)
class TableRange:
    """Some rows of an article, which one session reads."""

    article: RegisteredArticle
    number: int
    """Number of the range, from 1."""
    share: float
    """The part of the table, from 0 to 1."""

    @property
    def name(self) -> str:
        return str(self.article.source)


@dataclass(frozen=True, slots=True)
class KeyRange(TableRange):
    """Rows from `first` of the key's first column, which is a whole number, up to before `end`; None: without a bound.
    Any snapshot can be asked for them: another one goes on where this one was interrupted."""

    first: int | None
    end: int | None


def key_ranges(article: RegisteredArticle, bounds: Sequence[int]) -> list[KeyRange]:
    """Return the article's table in ranges of keys; `bounds`: where those after the first begin."""
    numbered = enumerate(pairwise([None, *bounds, None]), start=1)
    return [KeyRange(article, number, 1 / (len(bounds) + 1), *of) for number, of in numbered]


def key_bounds(ranges: Sequence[TableRange]) -> list[int] | None:
    """Return the bounds that `key_ranges` made these of; None where they are others."""
    if not all(isinstance(it, KeyRange) for it in ranges):
        return None
    return [it.first for it in ranges if isinstance(it, KeyRange) and it.first is not None]


class SnapshotSession(Protocol):
    """A session that sees the snapshot, and no later change."""

    def hold(self, articles: Iterable[RegisteredArticle]) -> None:
        """Keep the articles' tables from what would hide rows from the snapshot, until the session ends.

        Raises TransientError where that has happened already, where a table is another one than was registered, or
        another session keeps it locked.
        """
        ...

    def ranges(self, article: RegisteredArticle, bytes_each: int | None) -> Sequence[TableRange]:
        """Return the article's table in ranges of so many bytes; None: in one piece. There is at least one."""
        ...

    def lines(self, chosen: TableRange) -> Iterator[bytes]:
        """Read the range: published columns and rows, one image line (`model.row_images`) a row with a line feed, whole
        rows, many at a time. Raises DataError where a row cannot be read."""
        ...

    def rows_of_keys(self, article: RegisteredArticle, keys: Sequence[Values]) -> dict[Key, Values]:
        """Return the published values of the rows with these keys, by key; all in the text form of the log."""
        ...


class SnapshotSource(Protocol):
    """Opens sessions that see the snapshot, while it lives. It travels pickled to Spark's tasks, password and all."""

    def session(self, application_name: str) -> AbstractContextManager[SnapshotSession]:
        """Open a session that sees the snapshot. Raises TransientError where the snapshot does not live any more."""
        ...


class Snapshot(Protocol):
    """It lives until the context ends that took it."""

    @property
    def position(self) -> Position:
        """It shows every transaction whose commit is before this, and none other."""
        ...

    @property
    def xact_seqno(self) -> bytes:
        """The watermark of a Subscriber that has all that it shows."""
        ...

    @property
    def source(self) -> SnapshotSource: ...

    def comparison(self, articles: Sequence[RegisteredArticle]) -> AbstractContextManager[PublisherComparison]:
        """Open what compares these articles' rows with a Subscriber's. Raises as `SnapshotSession.hold` does."""
        ...


def renamed_or_dropped(where: str, article: RegisteredArticle) -> UnregisteredError:
    """Return the error of an article whose table is not there by its name, though another one may be."""
    return UnregisteredError(
        f"{where}: table {article.source} is not the one that is registered: that was renamed or dropped",
        str(article.source),
    )


class PublisherComparison(Protocol):
    """Until it is closed, nobody empties or rewrites the articles' tables."""

    def describe(self, articles: Sequence[RegisteredArticle]) -> Mapping[TableName, TableDescription]:
        """Return the articles' tables that exist."""
        ...

    def native_hashes(self) -> tuple[object, ...]:
        """Return what the server's hash functions make of sample values."""
        ...

    def forms(self, article: RegisteredArticle, wanted: Sequence[ColumnForm]) -> Sequence[ColumnForm]:
        """Return the forms in which the article's columns are compared, by those that the Subscriber asks for. Raises
        ConfigurationError for a column that cannot be compared."""
        ...

    def table_bytes(self, articles: Sequence[RegisteredArticle]) -> int:
        """Return the size of all these articles' tables, in bytes."""
        ...

    def end(
        self, article: RegisteredArticle, forms: Sequence[ColumnForm], checksum_by: Checksum, part_bytes: int
    ) -> ComparedEnd:
        """Return the article's end, its columns in these forms, read in parts of about that many bytes."""
        ...
