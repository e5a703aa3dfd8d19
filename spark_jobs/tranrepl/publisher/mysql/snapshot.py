"""A Publisher's rows at one position of its log.

A snapshot of MariaDB or MySQL is seen by the session that took it alone. So that session reads for all: a thread beside
it answers who knows the snapshot's secret, over a socket, one question at a time.
"""

from __future__ import annotations

import json
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Client, Connection as Channel, Listener
from typing import Any

from pymysql.cursors import SSCursor

from tranrepl.connections import Connection
from tranrepl.errors import ConfigurationError, DataError, ErrorReport, ReplicationError, TransientError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.names import TableName
from tranrepl.model.position import Position
from tranrepl.model.row_images import values as values_of_line
from tranrepl.mysql.session import Rows, Session, connect, quoted, translated_errors
from tranrepl.publisher.mysql.catalogue import describe_tables, spellings, table_bytes, table_number
from tranrepl.publisher.mysql.column_types import declared
from tranrepl.publisher.mysql.comparison import MySqlComparison, SnapshotThread, require_hash
from tranrepl.publisher.mysql.positions import BinlogPositions, file_number, place_at, position_of
from tranrepl.publisher.mysql.row_filters import condition
from tranrepl.publisher.mysql.table_maps import Flavor
from tranrepl.publisher.snapshot import TableRange, UnregisteredError, Values, renamed_or_dropped

_ROWS = 5000
"""Read at a time."""
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
        return [TableRange(article, 1, 1.0)]

    def lines(self, chosen: TableRange) -> Iterator[bytes]:
        yield from self._ask("lines", chosen.article, None)

    def rows_of_keys(self, article: RegisteredArticle, keys: Sequence[Values]) -> dict[tuple[str | None, ...], Values]:
        found: dict[tuple[str | None, ...], Values] = {}
        for line in b"".join(self._ask("lines", article, list(keys))).decode().split("\n")[:-1]:
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
        with self.source.session("tranrepl validation") as session, ThreadPoolExecutor(1, "tranrepl-validation") as one:
            session.hold(articles)
            yield self.answering.comparison(articles, one)


@contextmanager
def taken_snapshot(connection: Connection, where: str, flavor: Flavor, seconds: float) -> Iterator[MySqlSnapshot]:
    """Take a snapshot, and answer for it until the context ends. Rows of an XA transaction that is prepared are not in
    it, and come with its commit. Raises TransientError where no moment was found for one."""
    with connect(connection) as session:
        with translated_errors(where):
            session.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            session.execute("SET SESSION net_write_timeout = 3600, wait_timeout = 86400")
            place = _begun(session) if flavor is Flavor.MARIADB else _begun_between(session, where, seconds)
        position = position_of(place)
        host = _own_address(session, where)
        secret = secrets.token_bytes(32)
        with Listener((host, 0), authkey=secret) as listener:
            answering = _Answering(session, where, listener)
            answering.start()
            try:
                yield MySqlSnapshot(position, MySqlSnapshotSource(listener.address, secret), answering)
            finally:
                answering.stop()


_BEGIN = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"


def _begun(session: Session) -> int:
    """Begin a transaction that sees a snapshot of MariaDB, which knows its place in the log; return that."""
    session.execute(_BEGIN)
    status: dict[str, str] = dict(session.execute("SHOW STATUS LIKE 'binlog_snapshot_%'"))
    return place_at(file_number(status["Binlog_snapshot_file"]), int(status["Binlog_snapshot_position"]))


def _begun_between(session: Session, where: str, seconds: float) -> int:
    """Begin a transaction that sees a snapshot of MySQL; return its place in the log: the same before and after."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        before = _committed_to(session)
        session.execute(_BEGIN)
        if _committed_to(session) == before:
            return before
        session.execute("ROLLBACK")
    raise TransientError(
        f"{where}: transactions were committed without a pause for {seconds:g} s, and a snapshot's place in the log is "
        "known in a pause alone",
        remedy="take the snapshot when there is less load",
    )


def _committed_to(session: Session) -> int:
    """Return the place in MySQL's log up to which transactions are seen. The log itself may be written further."""
    ((text,),) = session.execute("SELECT local FROM performance_schema.log_status")
    local = json.loads(text)
    return place_at(file_number(local["binary_log_file"]), int(local["binary_log_position"]))


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

    session: Session
    where: str
    listener: Listener
    is_over: bool = False
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        threading.Thread(target=self._accept, name="tranrepl-snapshot", daemon=True).start()

    def stop(self) -> None:
        self.is_over = True
        with suppress(OSError), self._one_at_a_time:
            self.session.driver.close()

    def rows(self, statement: str) -> Rows:
        """Return the rows of a statement of this process's own."""
        with self._one_at_a_time, translated_errors(self.where):
            return self.session.execute(statement)

    def comparison(self, articles: Sequence[RegisteredArticle], threads: ThreadPoolExecutor) -> MySqlComparison:
        """Return the articles' end of a comparison; `threads` is one."""
        names = [it.source for it in articles]
        with self._one_at_a_time, translated_errors(self.where):
            require_hash(self.session, self.where)
            tables = describe_tables(self.session, names)
            spelled = {it: spellings(self.session, it) for it in names}
            size = sum(table_bytes(self.session, it) for it in names)
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
        with channel, suppress(OSError, EOFError):
            while True:
                what, *arguments = channel.recv()
                questions: dict[str, Callable[..., Iterator[bytes]]] = {"hold": self._hold, "lines": self._lines}
                with self._one_at_a_time:
                    try:
                        with translated_errors(self.where):
                            for piece in questions[what](*arguments):
                                channel.send(piece)
                        channel.send(None)
                    except ReplicationError as error:
                        channel.send(error.report)

    def _hold(self, articles: Sequence[RegisteredArticle]) -> Iterator[bytes]:
        found = describe_tables(self.session, [it.source for it in articles])
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
            # What was read once is not altered until the session ends.
            self.session.execute(f"SELECT 1 FROM {qualified(it.source)} LIMIT 1")  # noqa: S608 - quoted
        yield from ()

    def _lines(self, article: RegisteredArticle, keys: Sequence[Values] | None) -> Iterator[bytes]:
        statement, bound = rows_query(self.session, article, keys)
        with self.session.driver.cursor(SSCursor) as cursor:
            cursor.execute(statement, bound or None)
            while rows := cursor.fetchmany(_ROWS):
                lines = [line for (line,) in rows]
                if None in lines:
                    # The server answers NULL, with a warning, for a text that is longer than it may be.
                    raise too_long(self.where, article)
                yield "".join(f"{line}\n" for line in lines).encode()


def too_long(where: str, article: RegisteredArticle) -> DataError:
    return DataError(
        f"{where}: a row of {article.source} is longer than max_allowed_packet",
        remedy="raise max_allowed_packet at the Publisher; then try again",
        article=str(article.source),
    )


def rows_query(
    session: Session, article: RegisteredArticle, keys: Sequence[Values] | None = None
) -> tuple[str, list[str | None]]:
    """Return the query of the article's rows, one image line each, and its values; only those with these keys."""
    spelled = spellings(session, article.source)
    texts = {it.name: declared(spelled[it.name]).text(it.name) for it in article.columns}
    # NULL where one of its values is NULL: a value that is too long must not become an ordinary NULL.
    line = ", '\t', ".join(_escaped(name, text) for name, text in texts.items())
    chosen = "TRUE" if article.filter is None else condition(article.filter, article.source, spelled).sql
    selected = f"SELECT CONCAT({line}) FROM {qualified(article.source)} WHERE ({chosen})"  # noqa: S608 - quoted
    if not keys:
        return selected if keys is None else f"{selected} AND FALSE", []
    names = [article.columns[at].name for at in article.key_positions]
    one = " AND ".join(f"BINARY {_formatted(texts[it])} = %s" for it in names)
    where = " OR ".join(f"({one})" for _ in keys)
    return f"{_formatted(selected)} AND ({where})", [value for key in keys for value in key]


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
