"""SQLAlchemy Core over a session of psycopg: it asks the server nothing of its own, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import psycopg
import pytest
import sqlalchemy as sa

from conftest import DatabasesFactory
from tranrepl.postgres.session import NamesApartCursor, Session, connect
from tranrepl.subscriber.postgres.core import core, driver
from tranrepl.subscriber.replication_tables import VERSION

_SENT: list[str] = []


class _RecordingCursor(NamesApartCursor):
    def execute(self, query: Any, params: Any = None, **options: Any) -> Self:
        _SENT.append(str(query))
        return super().execute(query, params, **options)


@pytest.fixture
def session(databases: DatabasesFactory) -> Iterator[Session]:
    with connect(databases().subscriber, "test", autocommit=True) as session:
        session.cursor_factory = _RecordingCursor
        _SENT.clear()
        yield session


def test_it_sends_what_it_is_given_and_no_more(session: Session) -> None:
    connection = core(session)
    assert driver(connection) is session
    with session.transaction():
        VERSION.create(connection, checkfirst=False)
        connection.execute(sa.insert(VERSION).values(revision=7, version="100%s"))
    assert connection.execute(sa.select(VERSION.c.revision, VERSION.c.version)).all() == [(7, "100%s")]
    connection.close()
    assert [it.split()[0] for it in _SENT] == ["CREATE", "INSERT", "SELECT"]
    assert all("public.msrepl_version" in it for it in _SENT)
    assert session.info.transaction_status is psycopg.pq.TransactionStatus.IDLE


def test_transactions_and_errors_are_the_sessions(session: Session) -> None:
    connection = core(session)
    with pytest.raises(psycopg.errors.UndefinedTable) as raised, session.transaction():
        connection.execute(sa.select(VERSION.c.revision))
    assert raised.value.__cause__ is None
    assert session.info.transaction_status is psycopg.pq.TransactionStatus.IDLE
    with session.transaction():
        VERSION.create(connection, checkfirst=False)
        raise psycopg.Rollback
    assert session.execute("SELECT pg_catalog.to_regclass('public.msrepl_version')").fetchone() == (None,)
