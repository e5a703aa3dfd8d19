"""Answers of a MariaDB server that are read packet by packet: texts of every length, and what ends an answer early."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pymysql
import pytest

from support.mariadb import MariaDbServer
from tranrepl.mysql.session import Session, connect
from tranrepl.publisher.mysql.packets import LARGEST, texts

_MANY = "(SELECT seq FROM seq_1_to_200000) AS many"


@pytest.fixture
def session(publishing: Callable[[str], MariaDbServer]) -> Iterator[Session]:
    server = publishing("mariadb")
    ((usual,),) = server.execute("SELECT @@GLOBAL.max_allowed_packet")
    server.execute("SET GLOBAL max_allowed_packet = 1 << 26")
    with connect(server.connection("mysql", "publisher")) as opened:
        yield opened
    server.execute(f"SET GLOBAL max_allowed_packet = {usual}")


def _lengths(session: Session, query: str) -> list[int | None]:
    return [None if it is None else len(it) for part in texts(session.driver, query) for it in part]


# A text of such a length comes behind a number of one to nine bytes, in packets of LARGEST bytes.
@pytest.mark.parametrize("length", [0, 250, 251, 65535, 65536, LARGEST - 4, LARGEST - 3, LARGEST, 2 * LARGEST - 9])
def test_texts_of_every_length_are_whole(session: Session, length: int) -> None:
    query = f"SELECT REPEAT('x', {length}) UNION ALL SELECT 'é' UNION ALL SELECT NULL"
    assert _lengths(session, query) == [length, 2, None]


def test_an_answer_that_is_not_read_to_its_end_leaves_the_session_usable(session: Session) -> None:
    found = texts(session.driver, f"SELECT CONCAT('number ', seq) FROM {_MANY}")
    assert bytes(next(found)[0] or b"") == b"number 1"
    found.close()
    assert session.execute("SELECT 1") == [(1,)]


@pytest.mark.parametrize(
    "query", ["SELECT x", f"SELECT IF(seq = 150000, (SELECT 1 UNION SELECT seq), 'a') FROM {_MANY}"]
)
def test_an_error_at_the_beginning_or_in_an_answer_is_raised(session: Session, query: str) -> None:
    with pytest.raises(pymysql.err.Error):
        _lengths(session, query)
    assert session.execute("SELECT 1") == [(1,)]
