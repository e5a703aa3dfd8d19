"""A Publisher's rows at one position of its log.

A snapshot of MariaDB or MySQL is seen by the session that took it alone. So some sessions take it together, and read
for all: threads beside them answer who knows the snapshot's secret, over a socket, one question a session at a time.
"""

from __future__ import annotations

import json
import math
import secrets
import socket
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from multiprocessing.connection import Client, Connection as Channel, Listener
from queue import Queue
from typing import Any

import pymysql
from pymysql.cursors import DictCursor

from tranrepl.connections import Connection
from tranrepl.errors import ConfigurationError, DataError, ErrorReport, ReplicationError, TransientError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.names import TableName
from tranrepl.model.position import Position
from tranrepl.model.row_images import values as values_of_line
from tranrepl.model.source_types import Family, source_type
from tranrepl.mysql.session import Rows, Session, connect, error_number, quoted, translated_errors
from tranrepl.publisher.mysql.catalogue import describe_tables, spellings, table_number, table_size
from tranrepl.publisher.mysql.column_types import declared
from tranrepl.publisher.mysql.comparison import MySqlComparison, SnapshotThread, require_hash
from tranrepl.publisher.mysql.packets import texts
from tranrepl.publisher.mysql.positions import BinlogPositions, position_of
from tranrepl.publisher.mysql.row_filters import condition
from tranrepl.publisher.mysql.snapshot_point import begun_together
from tranrepl.publisher.mysql.table_maps import Flavor
from tranrepl.publisher.snapshot import KeyRange, TableRange, UnregisteredError, Values, key_ranges, renamed_or_dropped

_READERS = 4
"""Sessions that take a snapshot together."""
_TASKS_AT_ONCE = 1024
_SECONDS_TOGETHER = 10.0
"""So long a moment is looked for in which all see the same."""
_WHOLE = (Family.SMALLINT, Family.INTEGER, Family.BIGINT, Family.NUMERIC)
_NO_SUCH_TABLE = 1146
_FEWEST_ROWS = 100
"""In a range: estimates of fewer say little."""
_QUESTIONS, _QUESTIONS_A_PART = 256, 8
_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))


@dataclass(frozen=True, slots=True)
class MySqlSnapshotSource:
    """Where the session that sees the snapshot answers."""

    address: tuple[str, int]
    secret: bytes = field(repr=False)

    @contextmanager
    def session(self, application_name: str) -> Iterator[MySqlSnapshotSession]:
        try:
            channel = Client(self.address, authkey=self.secret)
        except (OSError, EOFError) as error:
            raise TransientError(f"the snapshot does not live any more: {error}") from error
        with channel:
            yield MySqlSnapshotSession(channel)


@dataclass(frozen=True, slots=True)
class MySqlSnapshotSession:
    """Asks the session that sees the snapshot."""

    channel: Channel

    def hold(self, articles: Iterable[RegisteredArticle]) -> None:
        list(self._ask("hold", list(articles)))

    def ranges(self, article: RegisteredArticle, bytes_each: int | None) -> list[TableRange]:
        return [*key_ranges(article, json.loads(b"".join(self._ask("bounds", article, bytes_each))))]

    def lines(self, chosen: TableRange) -> Iterator[bytes]:
        if not isinstance(chosen, KeyRange):
            raise TypeError(f"{chosen.name}: not a range of keys")
        yield from self._ask("lines", chosen.article, None, chosen)

    def rows_of_keys(self, article: RegisteredArticle, keys: Sequence[Values]) -> dict[tuple[str | None, ...], Values]:
        found: dict[tuple[str | None, ...], Values] = {}
        for line in b"".join(self._ask("lines", article, list(keys), None)).decode().split("\n")[:-1]:
            values = values_of_line(line)
            found[tuple(values[at] for at in article.key_positions)] = values
        return found

    def _ask(self, *question: Any) -> Iterator[bytes]:
        """Yield the pieces of an answer. Raises ReplicationError."""
        try:
            self.channel.send(question)
            while (piece := self.channel.recv()) is not None:
                if isinstance(piece, ErrorReport):
                    raise piece.to_exception()
                yield piece
        except (OSError, EOFError) as error:
            raise TransientError(f"the snapshot does not live any more: {error}") from error


@dataclass(frozen=True, slots=True)
class MySqlSnapshot:
    position: Position
    source: MySqlSnapshotSource
    answering: _Answering

    @property
    def xact_seqno(self) -> bytes:
        return BinlogPositions().watermark(self.position)

    @contextmanager
    def comparison(self, articles: Sequence[RegisteredArticle]) -> Iterator[MySqlComparison]:
        readers = len(self.answering.sessions)
        with (
            self.source.session("tranrepl validation") as session,
            ThreadPoolExecutor(readers, "tranrepl-validation") as threads,
        ):
            session.hold(articles)
            yield self.answering.comparison(articles, threads)


@contextmanager
def taken_snapshot(
    connection: Connection, where: str, flavor: Flavor, seconds: float, say: Callable[[str], None]
) -> Iterator[MySqlSnapshot]:
    """Take a snapshot, and answer for it until the context ends. Rows of an XA transaction that is prepared are not in
    it, and come with its commit. Raises TransientError where no moment was found for one."""
    with ExitStack() as stack:
        sessions = [stack.enter_context(connect(connection)) for _ in range(_READERS)]
        with translated_errors(where):
            for it in sessions:
                it.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                it.execute("SET SESSION net_write_timeout = 3600, wait_timeout = 86400")
            place = begun_together(sessions, flavor, min(seconds / 2, _SECONDS_TOGETHER))
            if place is None:
                say(f"{where}: no moment without a commit was found for {_READERS} sessions; one session reads")
                sessions = sessions[:1]
                place = begun_together(sessions, flavor, seconds)
        if place is None:
            raise TransientError(
                f"{where}: transactions were committed without a pause for {seconds:g} s, and a snapshot's place in "
                "the log is known in a pause alone",
                remedy="take the snapshot when there is less load",
            )
        host = _own_address(sessions[0], where)
        secret = secrets.token_bytes(32)
        # Of more tasks that come at once, some would wait forever for an answer.
        with Listener((host, 0), backlog=_TASKS_AT_ONCE, authkey=secret) as listener:
            answering = _Answering(sessions, where, listener)
            answering.start()
            try:
                yield MySqlSnapshot(position_of(place), MySqlSnapshotSource(listener.address, secret), answering)
            finally:
                answering.stop()


def _own_address(session: Session, where: str) -> str:
    """Return the address that this machine has towards the server."""
    own: socket.socket = session.driver._sock  # type: ignore[attr-defined]
    if own.family is not socket.AF_INET:
        raise ConfigurationError(
            f"{where}: the connection is by a Unix socket or IPv6, and a snapshot's tasks need an IPv4 address of this "
            "machine",
            remedy="give the connection a host with an IPv4 address and a port, without unix_socket",
        )
    host, _ = own.getsockname()
    return str(host)


@dataclass(slots=True)
class _Answering:
    """Answers questions about the snapshot, for as long as it lives."""

    sessions: Sequence[Session]
    where: str
    listener: Listener
    is_over: bool = False
    _free: Queue[Session] = field(default_factory=Queue)
    _holding: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        for it in self.sessions:
            self._free.put(it)
        threading.Thread(target=self._accept, name="tranrepl-snapshot", daemon=True).start()

    def stop(self) -> None:
        """End the sessions, whatever they answer just now."""
        self.is_over = True
        for it in self.sessions:
            with suppress(OSError):
                it.driver._sock.shutdown(socket.SHUT_RDWR)  # type: ignore[attr-defined]

    @contextmanager
    def _session(self) -> Iterator[Session]:
        """Wait for a session that nobody uses, and lend it."""
        session = self._free.get()
        try:
            yield session
        finally:
            self._free.put(session)

    def rows(self, statement: str) -> Rows:
        """Return the rows of a statement of this process's own."""
        with self._session() as session, translated_errors(self.where):
            return session.execute(statement)

    def comparison(self, articles: Sequence[RegisteredArticle], threads: ThreadPoolExecutor) -> MySqlComparison:
        """Return the articles' end of a comparison; `threads`: as many as there are sessions."""
        names = [it.source for it in articles]
        with self._session() as session, translated_errors(self.where):
            require_hash(session, self.where)
            tables = describe_tables(session, names)
            spelled = {it: spellings(session, it) for it in names}
            size = sum(table_size(session, it).bytes for it in names)
        types = {it: {name: declared(text) for name, text in of.items()} for it, of in spelled.items()}
        return MySqlComparison(self.where, SnapshotThread(self.rows, threads), tables, types, size)

    def _accept(self) -> None:
        while not self.is_over:
            try:
                channel = self.listener.accept()
            except Exception:  # noqa: BLE001 - the listener is closed, or who called does not know the secret
                if self.is_over or getattr(self.listener, "_listener", None) is None:
                    return
                continue
            threading.Thread(target=self._answer, args=[channel], name="tranrepl-snapshot", daemon=True).start()

    def _answer(self, channel: Channel) -> None:
        questions: dict[str, Callable[..., Generator[bytes]]] = {
            "hold": self._hold,
            "bounds": self._bounds,
            "lines": self._lines,
        }
        with channel, suppress(OSError, EOFError):
            while True:
                what, *arguments = channel.recv()
                try:
                    with translated_errors(self.where), closing(questions[what](*arguments)) as pieces:
                        for piece in pieces:
                            channel.send(piece)
                    channel.send(None)
                except ReplicationError as error:
                    channel.send(error.report)

    def _hold(self, articles: Sequence[RegisteredArticle]) -> Generator[bytes]:
        """Read of each table in each session: until that ends, it is not altered. Then look whether the tables are as
        they are registered."""
        with self._holding, ExitStack() as stack:
            for session in [stack.enter_context(self._session()) for _ in self.sessions]:
                for it in articles:
                    _read_of(session, self.where, it)
            found = describe_tables(session, [it.source for it in articles])
        for it in articles:
            table = found.get(it.source)
            if table is None or it.source_object_id != table_number(it.source):
                raise renamed_or_dropped(self.where, it)
            now = {column.name: (column.type_oid, column.ordinal) for column in table.columns}
            for column in it.columns:
                if now.get(column.name) != (column.type_oid, column.ordinal):
                    raise UnregisteredError(
                        f"{self.where}: column {column.name} of table {it.source} is not as it is registered",
                        str(it.source),
                    )
        yield from ()

    def _bounds(self, article: RegisteredArticle, bytes_each: int | None) -> Generator[bytes]:
        """Yield where the article's ranges after the first begin, as JSON: numbers of the key's first column, where it
        is a whole number."""
        first, table = article.columns[article.key_positions[0]], article.source
        with self._session() as session:
            size = table_size(session, table)
            if bytes_each is None or size.bytes <= bytes_each or source_type(first.type_name).family not in _WHOLE:
                yield b"[]"
                return
            name, of = quoted(first.name), qualified(table)
            ((least, most),) = session.execute(f"SELECT MIN({name}), MAX({name}) FROM {of}")  # noqa: S608 - quoted
            parts = math.ceil(size.bytes / bytes_each)

            def rows_between(one: int, other: int) -> int:
                where = f"{name} >= {one} AND {name} < {other}"
                with session.driver.cursor(DictCursor) as cursor:
                    cursor.execute(f"EXPLAIN FORMAT = TRADITIONAL SELECT {name} FROM {of} WHERE {where}")  # noqa: S608 - quoted
                    return int((cursor.fetchone() or {}).get("rows") or 0)

            divided = [] if least is None else divided_range(rows_between, int(least), int(most) + 1, size.rows, parts)
        yield json.dumps(divided).encode()

    def _lines(
        self, article: RegisteredArticle, keys: Sequence[Values] | None, chosen: KeyRange | None
    ) -> Generator[bytes]:
        with self._session() as session, session.driver.cursor() as cursor:
            among = "TRUE" if chosen is None else _between(chosen)
            statement, bound = rows_query(session, article, keys, among)
            with closing(texts(session.driver, cursor.mogrify(statement, bound))) as found:
                for lines in found:
                    whole = [it for it in lines if it is not None]
                    if len(whole) < len(lines):
                        # The server answers NULL, with a warning, for a text that is longer than it may be.
                        raise too_long(self.where, article)
                    yield b"\n".join([*whole, b""])


def divided_range(rows_between: Callable[[int, int], int], first: int, last: int, rows: int, parts: int) -> list[int]:
    """Return the numbers at which a range of keys is divided: into halves, and these again, until each has no more than
    one of so many parts has, as the server estimates it. Keys may lie close together in a small part of the range."""
    share, left = max(rows // parts * 3 // 2, _FEWEST_ROWS), [(first, last, rows)]
    found, questions = list[int](), _QUESTIONS + _QUESTIONS_A_PART * parts
    while left:
        begin, end, there = left.pop()
        if there <= share or end - begin == 1 or questions <= 0:
            # The server never says that a range has no row.
            found += [begin] if there > 1 and begin > first else []
            continue
        middle, questions = (begin + end) // 2, questions - 2
        left += [(one, other, min(there, rows_between(one, other))) for one, other in ((begin, middle), (middle, end))]
    return sorted(found)


def _between(chosen: KeyRange) -> str:
    """Return SQL that is true for the range's rows."""
    column = quoted(chosen.article.columns[chosen.article.key_positions[0]].name)
    first = [] if chosen.first is None else [f"{column} >= {chosen.first}"]
    end = [] if chosen.end is None else [f"{column} < {chosen.end}"]
    return " AND ".join([*first, *end]) or "TRUE"


def _read_of(session: Session, where: str, article: RegisteredArticle) -> None:
    try:
        session.execute(f"SELECT 1 FROM {qualified(article.source)} LIMIT 1")  # noqa: S608 - quoted
    except pymysql.err.Error as error:
        if error_number(error) == _NO_SUCH_TABLE:
            raise renamed_or_dropped(where, article) from error
        raise


def too_long(where: str, article: RegisteredArticle) -> DataError:
    return DataError(
        f"{where}: a row of {article.source} is longer than max_allowed_packet",
        remedy="raise max_allowed_packet at the Publisher; then try again",
        article=str(article.source),
    )


def rows_query(
    session: Session, article: RegisteredArticle, keys: Sequence[Values] | None = None, among: str = "TRUE"
) -> tuple[str, list[str | None]]:
    """Return the query of the article's rows, one image line each, and the values that the driver binds, even if it has
    none; only those with these keys, and those for which a condition is true (`among`)."""
    spelled = spellings(session, article.source)
    texts = {it.name: declared(spelled[it.name]).text(it.name) for it in article.columns}
    # NULL where one of its values is NULL: a value that is too long must not become an ordinary NULL.
    line = ", '\t', ".join(_escaped(name, text) for name, text in texts.items())
    chosen = "TRUE" if article.filter is None else condition(article.filter, article.source, spelled).sql
    selected = f"SELECT CONCAT({line}) FROM {qualified(article.source)} WHERE ({chosen}) AND {among}"  # noqa: S608 - quoted
    if not keys:
        return _formatted(selected if keys is None else f"{selected} AND FALSE"), []
    places = article.key_positions
    numbers = [source_type(article.columns[at].type_name).family in _WHOLE for at in places]
    names = [_formatted(quoted(article.columns[at].name)) for at in places]
    written = [f"BINARY {_formatted(texts[article.columns[at].name])}" for at in places]

    def one(key: Values) -> str:
        """Return SQL that is true for the key's row. An index finds it by numbers, and by no text of a value."""
        of_key = zip(numbers, names, written, key, strict=True)
        return " AND ".join(
            f"{name} = {Decimal(value or 0):f}" if is_number else f"{text} = %s"
            for is_number, name, text, value in of_key
        )

    bound = [it for key in keys for is_number, it in zip(numbers, key, strict=True) if not is_number]
    return f"{_formatted(selected)} AND ({' OR '.join(f'({one(it)})' for it in keys)})", bound


def qualified(name: TableName) -> str:
    return f"{quoted(name.schema)}.{quoted(name.table)}"


def _formatted(text: str) -> str:
    """Return SQL as a statement has it whose values are bound: the driver formats that."""
    return text.replace("%", "%%")


def _escaped(column: str, text: str) -> str:
    """Return SQL that writes a column's text as a value of an image's line."""
    for character, escape in _ESCAPES:
        text = f"REPLACE({text}, '{character}', '{escape}')"
    return f"IF({quoted(column)} IS NULL, '\\N', {text})"
