"""What a subscription is promised: every transaction once and in order, up to its bound, or a clear stop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from conftest import DatabaseFactory, DatabasesFactory
from support.equality import differing_rows
from support.observed import (
    ITEM,
    commit_site,
    distribution_rows,
    insert_transactions,
    slot_position,
    stored_commands,
    watermark,
)
from support.site import Site, execute
from support.spark_here import SparkHere
from tranrepl.errors import ErrorKind
from tranrepl.jobs.requests import ApplyMode
from tranrepl.jobs.results import JobResult
from tranrepl.publisher.postgres.lsn import lsn_number


def test_two_subscriptions_read_the_stored_batches_and_not_the_log(
    database: DatabaseFactory, databases: DatabasesFactory, tmp_path: Path
) -> None:
    subscriptions = [{"name": "reporting", "connection": "subscriber"}, {"name": "archive", "connection": "archive"}]
    site = Site(databases(), tmp_path / "store", ["public.item"], SparkHere(), subscriptions)
    archive = site.connections["archive"] = database("archive")
    site.at_publisher(ITEM)
    site.set_up()
    insert_transactions(site, 3, 1)
    site.run()
    assert (differing_rows(site), differing_rows(site, archive)) == ({}, {})

    # From now on only `reporting` is delivered to, round by round; then `archive` catches up in one run.
    read = 0
    for sizes in ((5, 1), (2,)):
        insert_transactions(site, *sizes)
        read += site.read_log().commands
        assert site.deliver("reporting").commands == sum(sizes)
    assert execute(archive, "SELECT max(xact) FROM item") == [(2,)]
    position = slot_position(site)
    site.connections["publisher"] = replace(site.databases.publisher, login="nobody")
    caught_up = site.deliver("archive")
    assert (caught_up.error, caught_up.transactions, caught_up.commands) == (None, 3, read)
    assert (differing_rows(site), differing_rows(site, archive)) == ({}, {})
    assert slot_position(site) == position
    assert distribution_rows(
        site, "SELECT delivered_transactions, delivered_commands FROM mslogreader_history ORDER BY id"
    ) == [(2, 4), (2, 6), (1, 2)]


def test_a_bound_delivers_exactly_the_transactions_committed_before_it(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = commit_site(databases(), tmp_path, {"read_batch_size": 3})
    insert_transactions(site, 1, 2, 3, 4, 5)
    site.read_log().raise_error()
    times = sorted({it.commit_time for it in stored_commands(site)})
    assert len(times) == 5

    assert _delivered(site.deliver(committed_before=times[0])) == (0, 0)
    # Within a batch; again; at a batch's border; and without bound.
    assert _delivered(site.deliver(committed_before=times[2])) == (2, 3)
    assert _delivered(site.deliver(committed_before=times[2])) == (0, 0)
    assert site.at_subscriber("SELECT DISTINCT xact FROM item ORDER BY 1") == [(1,), (2,)]
    assert _delivered(site.deliver(committed_before=times[3])) == (1, 3)
    assert _delivered(site.deliver()) == (2, 9)
    assert differing_rows(site) == {}


def _delivered(result: JobResult) -> tuple[int, int]:
    result.raise_error()
    return result.transactions, result.commands


def test_an_idle_log_is_passed_over_without_spark(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = commit_site(databases(), tmp_path)
    site.at_publisher(
        "CREATE TABLE unpublished (id int PRIMARY KEY, filler text)",
        "INSERT INTO unpublished SELECT n, repeat('x', 500) FROM generate_series(1, 5000) n",
        "UPDATE unpublished SET filler = filler || 'y'",
    )
    written = lsn_number(site.at_publisher("SELECT pg_current_wal_lsn()::text")[0][0])
    assert slot_position(site) < written
    result = site.read_log()
    assert (result.error, result.transactions, result.batches) == (None, 0, 0)
    assert slot_position(site) >= written
    assert site.deliver().commands == 0


def test_both_histories_count_what_was_done(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = commit_site(databases(), tmp_path)
    insert_transactions(site, 3, 4)
    site.run()
    site.run()
    counted = "SELECT runstatus, delivered_transactions, delivered_commands, error_id, xact_seqno FROM {} ORDER BY id"
    last = watermark(site)
    for table in ("mslogreader_history", "msdistribution_history"):
        assert distribution_rows(site, counted.format(table)) == [(2, 2, 7, None, last), (4, 0, 0, None, last)]
        assert distribution_rows(site, f"SELECT commands_by_article FROM {table} ORDER BY id LIMIT 1") == [
            ({"public.item": 7},)
        ]


def test_a_row_that_is_gone_stops_the_delivery_at_its_command(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = commit_site(databases(), tmp_path, commit_batch_size=2)
    insert_transactions(site, 1, 1)
    site.run()
    site.at_subscriber("DELETE FROM item WHERE id = 2")
    insert_transactions(site, 3, 3, 3)
    site.at_publisher("BEGIN; DELETE FROM item WHERE id = 1; UPDATE item SET note = 'gone' WHERE id = 2; COMMIT")
    insert_transactions(site, 3)
    site.read_log().raise_error()
    failing = next(it for it in stored_commands(site) if it.operation == "UPDATE")

    first = site.deliver()
    assert first.error is not None
    assert (first.error.kind, first.transactions) == (ErrorKind.DATA, 3)
    result = site.deliver(mode=ApplyMode.SINGLE_CONNECTION)
    assert result.error is not None
    assert (result.error.kind, result.error.number) == (ErrorKind.DATA, "20598")
    assert "public.item" in result.error.message
    assert "id = 2" in result.error.message
    place = (failing.xact_seqno, 2, "public.item")
    assert (result.error.xact_seqno, result.error.command_id, result.error.article) == place
    # Transactions 3 and 4 were committed together; 5, which is in a commit batch with the one that fails, by itself.
    assert site.at_subscriber("SELECT DISTINCT xact FROM item ORDER BY 1") == [(1,), (3,), (4,), (5,)]
    errors = distribution_rows(
        site, "SELECT subscription, error_code, article, xact_seqno, command_id FROM msrepl_errors ORDER BY id"
    )
    assert errors[-1] == ("reporting", "20598", "public.item", bytes.fromhex(failing.xact_seqno), 2)
    assert distribution_rows(site, "SELECT runstatus FROM msdistribution_history ORDER BY id DESC LIMIT 1") == [(6,)]

    site.at_subscriber("INSERT INTO item VALUES (2, 2, 'item')")
    assert site.deliver().transactions == 2
    assert differing_rows(site) == {}
