"""Several streams at one Subscriber: all commit or none, and what they could not do one connection can."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
import pytest

from support.command_history import Column, History, seqno
from support.requirements import Requirement, require
from support.subscribers import KEY, Site
from support.thread_streams import DyingVote, deliver_in_threads
from tranrepl.distribution.delivery import Delivery, deliver, deliver_pieces
from tranrepl.distribution.stream_commands import Divider, left_over
from tranrepl.distribution.streams import Vote
from tranrepl.errors import ErrorKind
from tranrepl.jobs.results import JobResult
from tranrepl.model.commands import FIRST_XACT_SEQNO
from tranrepl.settings.publication import StreamAssignment
from tranrepl.subscriber.applier_options import ApplierOptions
from tranrepl.subscriber.base.subscriber import Subscriber
from tranrepl.subscriber.batching.commit_batches import CommitLimits
from tranrepl.subscriber.constraints import Constraints
from tranrepl.subscriber.registry import dialect_of
from tranrepl.subscriber.subscription import SubscriptionPosition

VENDOR = (Column("id", "integer", key=1), Column("name", "varchar(40)"))
OTHER = (Column("id", "integer", key=1), Column("vendor", "integer"))
LIMITS = CommitLimits(1000, 10_000)


@pytest.fixture
def stream_site(plain_site: Site) -> Site:
    if not dialect_of(plain_site.connection).capabilities.streams:
        pytest.skip("no streams there")
    return plain_site


@contextmanager
def _subscriber(site: Site) -> Iterator[Subscriber]:
    with dialect_of(site.connection).subscriber(site.connection, KEY, "test") as subscriber:
        yield subscriber


def _position(site: Site) -> SubscriptionPosition:
    with _subscriber(site) as subscriber:
        return subscriber.position()


def _delivery(site: Site, watermark: bytes = FIRST_XACT_SEQNO) -> Delivery:
    return Delivery(site.connection, KEY, site.articles, watermark, LIMITS, ApplierOptions(lock_timeout_seconds=1))


def _in_streams(
    site: Site,
    history: History,
    chosen: Sequence[int] | None = None,
    streams: int = 2,
    assignment: StreamAssignment = StreamAssignment.KEY,
    limits: CommitLimits = LIMITS,
    vote: Callable[[Vote, int], Vote] = lambda vote, stream: vote,  # noqa: ARG005
) -> JobResult:
    with _subscriber(site) as subscriber:
        subscriber.set_up_streams(streams)
        constraints = subscriber.constraints(list(site.articles.values()))
    divider = Divider(site.articles, streams, assignment, constraints, limits)
    return deliver_in_threads(_delivery(site), history.table(), divider, chosen=chosen, vote=vote)


class _LateVote:
    """A stream that begins so late that the other one has executed its part."""

    def __init__(self, vote: Vote) -> None:
        self._vote = vote
        self._began = False

    def gather(self, ballot: str) -> Sequence[str]:
        gathered = self._vote.gather(ballot)
        if not self._began:
            self._began = True
            time.sleep(0.5)
        return gathered


def _fails_in_streams_and_not_alone(
    site: Site,
    history: History,
    chosen: Sequence[int],
    vote: Callable[[Vote, int], Vote] = lambda vote, stream: vote,  # noqa: ARG005
) -> JobResult:
    """Return the first attempt's result, which rolls all back. The retry over a single connection delivers all."""
    failed = _in_streams(site, history, chosen, vote=vote)
    assert failed.error is not None
    assert (failed.commands, _position(site)) == (0, SubscriptionPosition(FIRST_XACT_SEQNO))
    retried = deliver(replace(_delivery(site), options=ApplierOptions()), history.table().to_batches())
    assert (retried.error, retried.commands) == (None, len(history.rows))
    assert _position(site) == SubscriptionPosition(seqno(history.xact))
    return failed


@pytest.mark.parametrize("assignment", list(StreamAssignment))
def test_streams_end_in_what_serial_order_ends_in(stream_site: Site, assignment: StreamAssignment) -> None:
    site = stream_site
    vendor, other = site.article("vendor", VENDOR), site.article("other", OTHER)
    history, tables = _random_history(vendor, other)
    result = _in_streams(site, history, streams=3, assignment=assignment, limits=CommitLimits(10, 10_000))
    assert (result.error, result.commands, result.transactions) == (None, len(history.rows), 40)
    assert result.batches == 4
    assert [tuple(map(str, row)) for row in site.rows("vendor")] == sorted(tables[0].items(), key=lambda it: int(it[0]))
    assert [tuple(map(str, row)) for row in site.rows("other")] == sorted(tables[1].items(), key=lambda it: int(it[0]))
    assert _position(site) == SubscriptionPosition(seqno(40))


def _random_history(*articles: object) -> tuple[History, list[dict[str, str]]]:
    chance, history = random.Random(7), History()
    tables: list[dict[str, str]] = [{} for _ in articles]
    for _ in range(40):
        history.transaction()
        for _ in range(chance.randrange(1, 8)):
            at = chance.randrange(len(articles))
            article, rows, row = articles[at], tables[at], str(chance.randrange(20))
            value = str(chance.randrange(100))
            if row not in rows:
                history.insert(article, [row, value])  # type: ignore[arg-type]
                rows[row] = value
            elif chance.random() < 0.6:
                value = str(int(rows[row]) + 1)
                history.update(article, [row, rows[row]], [row, value])  # type: ignore[arg-type]
                rows[row] = value
            else:
                history.delete(article, [row, rows.pop(row)])  # type: ignore[arg-type]
    return history, tables


def test_the_documented_case_of_a_key_that_moves_twice(stream_site: Site) -> None:
    # `pk = 2 where pk = 1` and `pk = 3 where pk = 2` are in different streams, and the second one comes first.
    site = stream_site
    vendor = site.article("vendor", VENDOR)
    site.execute("INSERT INTO vendor VALUES (1, 'one')")
    history = History().update(vendor, ["1", "one"], ["2", "one"])
    history.transaction().update(vendor, ["2", "one"], ["3", "one"])
    failed = _fails_in_streams_and_not_alone(
        site, history, [1, 0], lambda vote, stream: _LateVote(vote) if stream == 1 else vote
    )
    assert failed.error is not None
    assert (failed.error.kind, failed.error.number, failed.error.key) == (ErrorKind.DATA, "20598", "id = 2")
    assert (failed.error.xact_seqno, failed.error.command_id) == (seqno(2).hex(), 1)
    assert site.rows("vendor") == [(3, "one")]


@pytest.mark.parametrize("assignment", list(StreamAssignment))
def test_a_key_that_moves_twice_stays_in_one_stream(stream_site: Site, assignment: StreamAssignment) -> None:
    site = stream_site
    vendor = site.article("vendor", VENDOR)
    site.execute(*(f"INSERT INTO vendor VALUES ({at}, 'x')" for at in range(1, 40, 10)))
    history = History()
    for at in range(1, 40, 10):
        history.transaction().update(vendor, [str(at), "x"], [str(at + 1), "x"])
        history.transaction().update(vendor, [str(at + 1), "x"], [str(at + 2), "x"])
    assert _in_streams(site, history, assignment=assignment).error is None
    assert site.rows("vendor") == [(at + 2, "x") for at in range(1, 40, 10)]


def _with_foreign_key(site: Site) -> History:
    vendor, other = site.article("vendor", VENDOR), site.article("other", OTHER)
    site.execute("ALTER TABLE other ADD CONSTRAINT other_vendor FOREIGN KEY (vendor) REFERENCES vendor (id)")
    history = History()
    for at in range(1, 9):
        history.transaction().insert(vendor, [str(at), "parent"])
        history.transaction().insert(other, [str(at), str(at)])
    return history


def test_parent_and_child_in_different_streams(stream_site: Site) -> None:
    history = _with_foreign_key(stream_site)
    _fails_in_streams_and_not_alone(stream_site, history, [0, 1] * 8)
    assert stream_site.rows("other") == [(at, at) for at in range(1, 9)]


def test_dependencies_keep_parent_and_child_together(stream_site: Site) -> None:
    history = _with_foreign_key(stream_site)
    result = _in_streams(stream_site, history, assignment=StreamAssignment.DEPENDENCIES)
    assert (result.error, result.commands) == (None, 16)
    assert stream_site.rows("other") == [(at, at) for at in range(1, 9)]


def _with_unique_name(site: Site) -> History:
    vendor = site.article("vendor", VENDOR)
    site.execute(
        "ALTER TABLE vendor ADD CONSTRAINT vendor_name UNIQUE (name)",
        *(f"INSERT INTO vendor VALUES ({at}, 'name {at}')" for at in range(8)),
    )
    history = History()
    for at in range(8):
        history.transaction().delete(vendor, [str(at), f"name {at}"])
        history.transaction().insert(vendor, [str(at + 8), f"name {at}"])
    return history


def test_a_unique_value_handed_from_one_row_to_another(stream_site: Site) -> None:
    history = _with_unique_name(stream_site)
    _fails_in_streams_and_not_alone(stream_site, history, [0, 1] * 8)
    assert stream_site.rows("vendor") == [(at + 8, f"name {at}") for at in range(8)]


def test_dependencies_keep_a_unique_value_in_one_stream(stream_site: Site) -> None:
    history = _with_unique_name(stream_site)
    assert _in_streams(stream_site, history, assignment=StreamAssignment.DEPENDENCIES).error is None
    assert stream_site.rows("vendor") == [(at + 8, f"name {at}") for at in range(8)]


def test_two_streams_that_block_each_other_give_up(stream_site: Site) -> None:
    # No database sees it: one waits for a row, the other one for the vote.
    site = stream_site
    require(site.connection, Requirement.LOCK_TIMEOUT_NUMBER)
    vendor = site.article("vendor", VENDOR)
    site.execute("INSERT INTO vendor VALUES (1, 'a')")
    history = History().update(vendor, ["1", "a"], ["1", "b"])
    history.transaction().update(vendor, ["1", "b"], ["1", "c"])
    started = time.monotonic()
    failed = _fails_in_streams_and_not_alone(site, history, [0, 1])
    assert time.monotonic() - started < 60
    assert failed.error is not None
    assert failed.error.kind is ErrorKind.TRANSIENT
    assert site.rows("vendor") == [(1, "c")]


def test_streams_do_not_wait_for_other_rows_of_a_small_table(stream_site: Site) -> None:
    site, history = stream_site, History()
    vendor = site.article("vendor", VENDOR)
    site.execute("INSERT INTO vendor VALUES (1, 'a'), (2, 'a'), (3, 'a')")
    for row in ("1", "2", "3"):
        history.transaction().update(vendor, [row, "a"], [row, "b"])
    done = _in_streams(site, history, [0, 1, 1], vote=lambda vote, stream: _LateVote(vote) if stream else vote)
    assert (done.error, done.in_bulk) == (None, 3)
    assert site.rows("vendor") == [(row, "b") for row in (1, 2, 3)]


def test_a_truncate_is_not_divided(stream_site: Site) -> None:
    site = stream_site
    vendor = site.article("vendor", VENDOR)
    history = History()
    for at in range(20):
        history.transaction().insert(vendor, [str(at), "old"])
    history.transaction().truncate(vendor)
    history.transaction().insert(vendor, ["1", "new"])
    assert _in_streams(site, history).error is None
    assert site.rows("vendor") == [(1, "new")]


@pytest.mark.parametrize("assignment", list(StreamAssignment))
def test_a_batch_whose_streams_died_among_their_commits_is_finished(
    stream_site: Site, assignment: StreamAssignment
) -> None:
    site = stream_site
    vendor = site.article("vendor", VENDOR)
    history = History()
    for at in range(30):
        history.transaction().insert(vendor, [str(at), "x"])
    history.transaction().delete(vendor, ["3", "x"])
    with _subscriber(site) as subscriber:
        subscriber.set_up_streams(3)
    divider = Divider(site.articles, 3, assignment, Constraints(), LIMITS)
    died = deliver_in_threads(
        _delivery(site),
        history.table(),
        divider,
        vote=lambda vote, stream: DyingVote(vote) if stream == 0 else vote,
    )
    position = _position(site)
    assert died.error is not None
    assert position.unfinished is not None
    assert (position.watermark, position.unfinished.committed) == (FIRST_XACT_SEQNO, frozenset({1, 2}))
    assert 0 < died.commands < len(history.rows)

    fenced = deliver(_delivery(site), history.table().to_batches())
    assert fenced.error is not None
    assert (fenced.error.kind, fenced.commands) == (ErrorKind.FENCED, 0)

    finishing = replace(_delivery(site), finishing=position.unfinished, options=ApplierOptions())
    pieces = left_over(history.table().to_batches(), position.unfinished, site.articles)
    finished = deliver_pieces(finishing, pieces)
    assert finished.error is None
    assert died.commands + finished.commands == len(history.rows)
    assert _position(site) == SubscriptionPosition(seqno(31))
    assert site.rows("vendor") == [(at, "x") for at in range(30) if at != 3]
    again = deliver_pieces(finishing, left_over(history.table().to_batches(), position.unfinished, site.articles))
    assert again.error is not None
    assert again.error.kind is ErrorKind.FENCED


def test_a_custom_procedure_that_raises_in_one_stream_undoes_all(stream_site: Site) -> None:
    if not stream_site.kind.procedures:
        pytest.skip("statements call no procedures")
    site = stream_site
    vendor = site.article("vendor", VENDOR, ins_cmd="CALL refuse_name")
    site.execute(_REFUSING[site.kind.database])
    history = History()
    for at in range(10):
        history.transaction().insert(vendor, [str(at), "bad" if at == 7 else "good"])
    failed = _in_streams(site, history)
    assert failed.error is not None
    assert (failed.error.kind, failed.error.key) == (ErrorKind.DATA, "id = 7")
    assert "no bad names" in failed.error.message
    assert site.rows("vendor") == []
    retried = deliver(_delivery(site), history.table().to_batches())
    assert retried.error is not None
    assert (retried.error.xact_seqno, retried.error.command_id) == (seqno(8).hex(), 1)


_REFUSING = {
    "postgres": "CREATE PROCEDURE refuse_name(c1 integer, c2 text) LANGUAGE plpgsql AS $$ BEGIN "
    "IF c2 = 'bad' THEN RAISE EXCEPTION 'no bad names'; END IF; INSERT INTO vendor VALUES (c1, c2); END $$",
    "mariadb": "CREATE PROCEDURE refuse_name(c1 integer, c2 varchar(40)) BEGIN "
    "IF c2 = 'bad' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no bad names'; END IF; "
    "INSERT INTO vendor VALUES (c1, c2); END",
    "mssql": "create procedure refuse_name @c1 int, @c2 varchar(40) as begin "
    "if @c2 = 'bad' throw 50001, 'no bad names', 1; insert into vendor values (@c1, @c2) end",
}


def test_no_streams_means_no_commands() -> None:
    divider = Divider({}, 2, StreamAssignment.KEY, Constraints(), LIMITS)
    assert list(divider(pa.table({}).to_batches())) == []
