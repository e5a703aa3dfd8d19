"""Several statements in one message, and the error where one of them fails."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import psycopg
import pytest
from psycopg import errors, sql

from conftest import DatabasesFactory
from tranrepl.postgres.session import Session, connect
from tranrepl.subscriber.batching.steps import MismatchError
from tranrepl.subscriber.postgres.statement_pipeline import Statement, run_script

_COPY = sql.SQL("COPY t FROM STDIN")
_MOVE = Statement(sql.SQL("UPDATE t SET n = n + 100000"))
_DIVIDE = Statement(sql.SQL("SELECT 1 / 0"))


@pytest.fixture
def session(databases: DatabasesFactory) -> Iterator[Session]:
    with connect(databases().subscriber, "test") as session:
        session.execute("CREATE TEMPORARY TABLE t (n int PRIMARY KEY, word text)")
        session.commit()
        yield session


def _copied(*numbers: int, word: str = "w") -> Statement:
    return Statement(_COPY, memoryview("".join(f"{number}\t{word}\n" for number in numbers).encode()))


def _wanted(statement: Statement, rows: int) -> Statement:
    return Statement(statement.query, statement.copied, partial(_require, rows))


def _require(wanted: int, met: int) -> None:
    if met != wanted:
        raise MismatchError(f"{met} and not {wanted}")


def _numbers(session: Session) -> list[int]:
    return [number for (number,) in session.execute("SELECT n FROM t ORDER BY n")]


def test_each_statement_sees_what_those_before_it_did(session: Session) -> None:
    statements = [_wanted(_copied(1, 2), 2), _wanted(_MOVE, 2), _wanted(_copied(3), 1), _wanted(_MOVE, 3)]
    assert len(run_script(session, statements)) == len(statements)
    assert _numbers(session) == [100_003, 200_001, 200_002]


def test_much_is_copied_whole(session: Session) -> None:
    rows, word = 20_000, "x" * 200
    run_script(session, [_wanted(_copied(*range(rows), word=word), rows), _wanted(_MOVE, rows), _copied(-1)])
    assert session.execute("SELECT count(*), min(n), max(n), max(word) FROM t").fetchone() == (
        rows + 1,
        -1,
        100_000 + rows - 1,
        word,
    )


@pytest.mark.parametrize("after", [_MOVE, _copied(1), _DIVIDE])
def test_the_first_mismatch_is_told_whatever_comes_after_it(session: Session, after: Statement) -> None:
    with pytest.raises(MismatchError, match="1 and not 7"):
        run_script(session, [_wanted(_copied(1), 7), after, _wanted(_copied(5), 9)])
    session.rollback()
    assert _numbers(session) == []


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (_DIVIDE, errors.DivisionByZero),
        (_copied(1), errors.UniqueViolation),
        (Statement(_COPY, memoryview(b"x\ty\n")), errors.InvalidTextRepresentation),
        (Statement(sql.SQL("SELEC")), errors.SyntaxError),
    ],
)
def test_an_error_is_the_driver_s_own(session: Session, wrong: Statement, kind: type[psycopg.Error]) -> None:
    with pytest.raises(kind):
        run_script(session, [_copied(1), wrong, _copied(2)])
    session.rollback()
    run_script(session, [_copied(3)])
    assert _numbers(session) == [3]


def test_a_server_that_ends_the_session_is_named(session: Session) -> None:
    with pytest.raises(errors.AdminShutdown):
        run_script(session, [Statement(sql.SQL("SELECT pg_terminate_backend(pg_backend_pid())")), _copied(1)])
    assert session.closed
