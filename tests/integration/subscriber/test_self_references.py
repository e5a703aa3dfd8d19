"""Statements at the Publisher over rows that refer to one another, where the Subscriber's own foreign key acts at once:
row by row, in the log's order, it refuses them; as one statement, it does not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conftest import DatabasesFactory
from support.in_process import deliver_stored, read_log_into_store, replicate_stored
from support.observed import distribution_rows
from support.site import Site
from support.spark_here import SparkHere
from support.thread_streams import DyingVote
from tranrepl.distribution import job as distribution_job
from tranrepl.errors import ErrorKind
from tranrepl.jobs.requests import ApplyMode, DistributionRequest
from tranrepl.jobs.results import JobResult

_KEY = "ALTER TABLE part ADD CONSTRAINT part_within FOREIGN KEY (within) REFERENCES part (id)"


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    return _site(databases, tmp_path)


def _site(databases: DatabasesFactory, tmp_path: Path, **settings: object) -> Site:
    """Return a tree of parts, each within an earlier one, delivered up to here; the next delivery is over streams."""
    subscription = {"name": "reporting", "connection": "subscriber", "subscription_streams": 2, "lock_timeout": 1}
    articles = ["public.part", "public.note"]
    site = Site(databases(), tmp_path / "store", articles, None, [{**subscription, **settings}])
    site.at_publisher("CREATE TABLE part (id int PRIMARY KEY, within int, name text)", _KEY)
    site.at_publisher("CREATE TABLE note (id int PRIMARY KEY)")
    site.set_up()
    site.at_publisher("INSERT INTO part SELECT n, nullif(n / 2, 0), 'part ' || n FROM generate_series(1, 60) n")
    replicate_stored(site)
    site.at_subscriber(_KEY)
    return site


def _fails_over_streams(site: Site, *statements: str) -> None:
    """Store what was done, and fail over streams without leaving anything of it."""
    before = site.at_subscriber("SELECT * FROM part ORDER BY id")
    site.at_publisher(*statements)
    read_log_into_store(site).raise_error()
    failed = deliver_stored(site)
    assert failed.error is not None
    assert (failed.error.kind in (ErrorKind.DATA, ErrorKind.TRANSIENT), failed.commands) == (True, 0)
    assert site.at_subscriber("SELECT * FROM part ORDER BY id") == before


def _retried(site: Site) -> JobResult:
    """Run the whole job over a single connection, as the retry does."""
    request = DistributionRequest(
        publication=site.publication, subscription="reporting", mode=ApplyMode.SINGLE_CONNECTION
    )
    tasks: Any = SparkHere()
    return distribution_job.run(tasks, request, site.connections)


_STATEMENTS = {
    "deleted": "DELETE FROM part WHERE id BETWEEN 5 AND 60",
    "inserted children first": "INSERT INTO part SELECT n, n - 1, 'late' FROM generate_series(100, 62, -1) n "
    "UNION ALL SELECT 61, 1, 'late'",
    "renumbered": "UPDATE part SET id = id + 100, within = within + 100",
    "replaced": "BEGIN; DELETE FROM part; INSERT INTO part SELECT n, nullif(n - 1, 0), 'anew' "
    "FROM generate_series(1, 40) n; COMMIT",
}


@pytest.mark.parametrize("what", _STATEMENTS)
def test_what_one_statement_did_is_delivered_over_a_single_connection(site: Site, what: str) -> None:
    _fails_over_streams(site, _STATEMENTS[what])
    retried = _retried(site)
    assert (retried.error, retried.fallbacks, retried.in_bulk) == (None, {}, retried.commands)
    assert retried.commands > 0
    assert site.differences() == []


# In bulk, rows go before others leave them, and others are moved before rows come: that is for the log's order.
_MIXED = (
    """BEGIN; INSERT INTO part VALUES (70, 1, 'new'); UPDATE part SET within = 70 WHERE within = 7;
    DELETE FROM part WHERE id = 7; COMMIT""",
    "DELETE FROM part WHERE id IN (5, 10, 11, 20, 21, 22, 23) OR id BETWEEN 40 AND 47",
    "INSERT INTO part VALUES (80, 14, 'below'), (81, 80, 'below')",
    "INSERT INTO part SELECT n, n + 1, 'above' FROM generate_series(90, 94) n UNION ALL SELECT 95, 80, 'above'",
    "UPDATE part SET within = 81 WHERE within = 70",
)


@pytest.mark.parametrize("streams", [1, 2])
def test_serial_and_bulk_commands_are_delivered_in_one_commit(
    databases: DatabasesFactory, tmp_path: Path, streams: int
) -> None:
    site = _site(databases, tmp_path, subscription_streams=streams)
    site.at_publisher(*_MIXED)
    read_log_into_store(site).raise_error()
    result = _retried(site)
    assert (result.error, result.transactions, result.batches) == (None, len(_MIXED), 1)
    assert (result.in_bulk, result.fallbacks) == (15 + 6, {"error 547 (23503)": 1})
    assert site.differences() == []


def test_what_is_skipped_is_skipped_once_however_often_it_is_tried(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases, tmp_path, skip_errors=["22003", 20598], subscription_streams=1)
    # One is found when it is staged, the other one when it is applied.
    site.at_subscriber("ALTER TABLE note ALTER id TYPE smallint", "DELETE FROM part WHERE id = 60")
    site.at_publisher("INSERT INTO note VALUES (1), (100000)", "UPDATE part SET name = 'gone' WHERE id = 60", *_MIXED)
    read_log_into_store(site).raise_error()
    result = _retried(site)
    assert (result.error, result.skipped, result.in_bulk) == (None, 2, 15 + 6)
    assert [(it.shown_number, it.article, it.key, it.command) for it in result.first_skipped] == [
        ("8115 (22003)", "public.note", "id = 100000", None),
        ("20598", "public.part", "id = 60", None),
    ]
    ((comments,),) = distribution_rows(
        site, "SELECT comments FROM msdistribution_history WHERE runstatus = 2 ORDER BY id DESC LIMIT 1"
    )
    assert "Skipped, as skip_errors says: 2 of them." in comments
    skipped = distribution_rows(site, "SELECT error_code, command FROM msrepl_errors WHERE skipped ORDER BY id")
    assert skipped == [("8115 (22003)", "{CALL [sp_MSins_publicnote] (100000)}"), ("20598", _GONE)]
    parts = site.at_publisher("SELECT * FROM part WHERE id <> 60 ORDER BY id")
    assert (site.at_subscriber("SELECT * FROM note"), site.at_subscriber("SELECT * FROM part ORDER BY id")) == (
        [(1,)],
        parts,
    )


_GONE = "{CALL [sp_MSupd_publicpart] (,,'gone',60,0x04)}"


def test_with_apply_serial_it_stays_serial_and_names_the_command(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases, tmp_path, apply="serial")
    _fails_over_streams(site, _STATEMENTS["deleted"])
    retried = _retried(site)
    assert retried.error is not None
    assert (retried.error.shown_number, retried.error.command_id, retried.in_bulk) == ("547 (23503)", 1, 0)
    assert retried.error.key == "id = 5"


def test_a_row_that_is_missing_is_named_after_both_ways_have_failed(site: Site) -> None:
    site.at_subscriber("UPDATE part SET within = NULL", "DELETE FROM part WHERE id = 33")
    _fails_over_streams(site, "UPDATE part SET name = 'changed'")
    retried = _retried(site)
    assert retried.error is not None
    assert (retried.error.number, retried.error.command_id, retried.error.key) == ("20598", 33, "id = 33")
    assert retried.fallbacks == {"UPDATEs in public.part do not each find one row": 1}
    ((command,),) = distribution_rows(site, "SELECT command FROM msrepl_errors ORDER BY id DESC LIMIT 1")
    assert command == "{CALL [sp_MSupd_publicpart] (,,'changed',33,0x04)}"


def test_a_row_that_is_missing_alone_is_skipped(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases, tmp_path, skip_errors=[20598])
    site.at_subscriber("UPDATE part SET within = NULL WHERE within = 33", "DELETE FROM part WHERE id = 33")
    _fails_over_streams(site, "UPDATE part SET name = 'changed'")
    retried = _retried(site)
    assert (retried.error, retried.commands, retried.skipped) == (None, 60, 1)
    assert retried.fallbacks == {"UPDATEs in public.part do not each find one row": 1}
    assert site.at_subscriber("SELECT id FROM part WHERE name <> 'changed'") == []
    assert site.at_subscriber("SELECT count(*) FROM part") == [(59,)]


def test_what_streams_that_died_among_their_commits_left_is_finished(site: Site) -> None:
    # A batch with a TRUNCATE is one stream's, which had applied it in bulk and was about to commit.
    site.at_publisher(_STATEMENTS["deleted"], "TRUNCATE note", "UPDATE part SET name = 'late' WHERE id = 1")
    read_log_into_store(site).raise_error()
    died = deliver_stored(site, lambda vote, stream: DyingVote(vote) if stream == 0 else vote)
    assert died.error is not None
    assert (died.error.message, died.commands, len(site.differences())) == ("killed", 0, 1)
    retried = _retried(site)
    assert (retried.error, retried.commands, retried.fallbacks) == (None, 58, {})
    assert site.differences() == []
