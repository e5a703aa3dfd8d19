"""The Publisher's log goes back: restored from a backup, or a standby promoted that did not have all of it. Nothing is
passed over silently; and where nothing was lost, runs go on by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.child_job import LOG_READER, SNAPSHOT, ChildJob
from support.embedded_postgres import PostgresServer
from support.in_process import deliver_stored, read_log_into_store
from support.item_site import (
    DATABASE,
    assert_refused_everywhere,
    assert_reinitializes,
    command,
    end_of_log,
    go_to,
    grow,
    insert,
    item_site,
    record_history,
    run,
    slot_rows,
)
from support.observed import watermark
from support.server_copies import back_up, catch_up, promote, restore, standby_of, synchronize_slots
from support.site import Site
from support.spark_here import SparkHere
from tranrepl.errors import FencedError, MustBeReinitializedError, TransientError
from tranrepl.failpoint import Failpoint
from tranrepl.jobs.requests import SnapshotRequest
from tranrepl.log_reader.draining import LogDraining
from tranrepl.publisher.log_range import LogRange
from tranrepl.publisher.postgres.continuity import Continuity
from tranrepl.publisher.postgres.slot import ReplicationSlot
from tranrepl.snapshot.reinitialization import mark_for_reinitialization


@pytest.fixture
def server(own_server: PostgresServer) -> PostgresServer:
    return own_server


@pytest.fixture
def site(server: PostgresServer, databases: DatabasesFactory, tmp_path: Path) -> Site:
    return item_site(server, databases(), tmp_path)


# Restored from a backup


@pytest.fixture
def backup(server: PostgresServer, site: Site, tmp_path: Path) -> Path:
    """Take a backup of the server with three rows; six more have been delivered since."""
    insert(site, 1, 3, "before")
    run(site)
    backup = back_up(server, tmp_path / "backup")
    insert(site, 4, 9, "lost")
    run(site)
    return backup


def test_an_older_backup_is_refused_though_its_log_has_grown_again(
    server: PostgresServer, site: Site, backup: Path, tmp_path: Path
) -> None:
    registered = watermark(site)
    restore(server, backup)
    insert(site, 4, 5, "after")
    grow(site, registered)
    assert_refused_everywhere(
        site,
        tmp_path,
        "the log went back",
        f"registered up to transaction 0x{registered.hex()}",
        "Subscribers are ahead: reporting up to 0x",
    )
    assert watermark(site) == registered
    assert_reinitializes(site, tmp_path)


@pytest.mark.slow
def test_an_older_backup_is_refused_while_its_log_is_shorter(
    server: PostgresServer, site: Site, backup: Path, tmp_path: Path
) -> None:
    site.at_publisher("SELECT pg_switch_wal()", "INSERT INTO item VALUES (10, 'lost')")
    run(site)
    restore(server, backup)
    insert(site, 4, 5, "after")
    assert_refused_everywhere(site, tmp_path, "the log went back")


@pytest.mark.slow
def test_the_rows_of_the_subscribers_may_stay_and_be_corrected(
    server: PostgresServer, site: Site, backup: Path, tmp_path: Path
) -> None:
    restore(server, backup)
    insert(site, 4, 5, "after")
    grow(site, watermark(site))
    outcome = command(site, tmp_path, "reinitialize", "--log-reader")
    assert (outcome.status, outcome.err) == (0, "")
    site.spark = SparkHere()
    found = site.validate(repair="apply")
    found.raise_error()
    assert found.validation is not None
    assert [it.repaired for it in found.validation.articles] == [6]
    assert site.differences() == []
    insert(site, 1001, 1003, "later")
    run(site)
    assert site.differences() == []


@pytest.mark.slow
def test_a_restored_publisher_that_has_all_that_was_read_goes_on(
    server: PostgresServer, site: Site, tmp_path: Path
) -> None:
    insert(site, 1, 5, "before")
    run(site)
    backup = back_up(server, tmp_path / "backup")
    # Read, and nothing of ours among it.
    grow(site, end_of_log(site))
    run(site)
    restore(server, backup)
    insert(site, 6, 9, "after")
    run(site)
    assert site.differences() == []


def test_a_crashed_publisher_forgets_only_where_its_slot_was(server: PostgresServer, site: Site) -> None:
    insert(site, 1, 5, "before")
    run(site)
    before = slot_rows(site)
    server.kill()
    server.start()
    assert slot_rows(site) != before
    insert(site, 6, 9, "after")
    run(site)
    assert site.differences() == []


def test_a_publisher_restored_while_its_log_is_read_registers_nothing(
    server: PostgresServer, site: Site, backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It is restored between the probe of its log and the reading.
    registered = watermark(site)
    site.at_publisher("CREATE TABLE other (filler text)")
    original = LogDraining._write

    def restored(reader: LogDraining, readings: Sequence[LogRange]) -> object:
        monkeypatch.undo()
        restore(server, backup)
        grow(site, registered)
        insert(site, 4, 5, "after")
        return original(reader, readings)

    monkeypatch.setattr(LogDraining, "_write", restored)
    with pytest.raises(TransientError):
        run(site)
    assert_refused_everywhere(site, tmp_path, "the log went back")


@pytest.mark.slow
def test_a_publisher_restored_from_before_a_snapshot_is_refused(
    server: PostgresServer, site: Site, tmp_path: Path
) -> None:
    # Nothing was read since; the Subscriber has the rows all the same.
    backup = back_up(server, tmp_path / "backup")
    insert(site, 1, 3, "lost")
    # More than the probes to come write: hints, where pages have checksums.
    site.at_publisher("SELECT pg_logical_emit_message(false, 'test', repeat('x', 1000000))")
    assert command(site, tmp_path, "reinitialize", "-s", "reporting").status == 0
    restore(server, backup)
    assert_refused_everywhere(site, tmp_path, "the log went back. Rows were copied from it as of")


@pytest.mark.slow
def test_a_subscriber_ahead_of_both_restored_databases_is_refused(
    server: PostgresServer, databases: DatabasesFactory, tmp_path: Path
) -> None:
    server.create_database("distribution")
    others = replace(databases(), distribution=server.connection("distribution"))
    site = item_site(server, others, tmp_path)
    insert(site, 1, 3, "before")
    run(site)
    record_history(site)
    backup = back_up(server, tmp_path / "backup")
    insert(site, 4, 9, "lost")
    run(site)
    record_history(site)
    registered = watermark(site)
    restore(server, backup)
    insert(site, 4, 5, "after")
    grow(site, registered)
    insert(site, 10, 11, "after")
    read_log_into_store(site).raise_error()
    with pytest.raises(MustBeReinitializedError, match="and the Subscriber is ahead"):
        deliver_stored(site)
    assert watermark(site) == registered
    assert_reinitializes(site, tmp_path)


def test_a_killed_delivery_goes_on_though_no_run_recorded_its_end(site: Site) -> None:
    insert(site, 1, 3, "before")
    run(site)
    record_history(site)
    insert(site, 4, 9, "delivered, and not told")
    run(site)
    insert(site, 10, 12, "after")
    run(site)
    assert site.differences() == []


# Another job works meanwhile


@pytest.mark.parametrize(
    "look",
    [
        "_holds_commit",
        *(pytest.param(it, marks=pytest.mark.slow) for it in ("ready", "_proven_start", "_latest_snapshot")),
    ],
)
def test_a_log_reader_that_goes_on_meanwhile_is_not_taken_for_a_log_that_went_back(
    site: Site, monkeypatch: pytest.MonkeyPatch, look: str
) -> None:
    insert(site, 1, 3, "before")
    # Registered, and the slot stands before it.
    assert ChildJob(LOG_READER, site, Failpoint.REGISTERED).killed()
    insert(site, 4, 6, "meanwhile")

    def other() -> None:
        read_log_into_store(site).raise_error()

    _do_before(monkeypatch, ReplicationSlot if look == "ready" else Continuity, look, other)
    with suppress(FencedError, TransientError):
        read_log_into_store(site).raise_error()
    run(site)
    assert site.differences() == []


def test_a_snapshot_taken_meanwhile_is_not_taken_for_one_that_is_lost(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert(site, 1, 3, "before")

    def other() -> None:
        insert(site, 4, 6, "meanwhile")
        assert command(site, tmp_path, "reinitialize", "-s", "reporting").status == 0

    _do_before(monkeypatch, Continuity, "_latest_snapshot", other)
    read_log_into_store(site).raise_error()
    run(site)
    assert site.differences() == []


def _do_before(monkeypatch: pytest.MonkeyPatch, of: type, name: str, what: Callable[[], None]) -> None:
    """Let something happen before the method is called for the first time."""
    original = getattr(of, name)

    def method(*given: object) -> object:
        monkeypatch.undo()
        what()
        return original(*given)

    monkeypatch.setattr(of, name, method)


# A standby is promoted


@pytest.fixture
def standby(server: PostgresServer, site: Site, server_folder: Path, tmp_path: Path) -> Iterator[PostgresServer]:
    """Yield a standby with the publication's slot, as it was when the first rows were delivered."""
    insert(site, 1, 3, "before")
    run(site)
    with standby_of(server, server_folder / f"{tmp_path.name}_standby", DATABASE) as standby:
        synchronize_slots(server, standby, DATABASE, lambda: run(site))
        yield standby


def _fail_over(site: Site, server: PostgresServer, standby: PostgresServer) -> None:
    """Promote a standby that was stopped before its primary, and so lacks what came after."""
    server.stop()
    standby.start()
    promote(standby)
    go_to(site, standby)


def test_a_promotion_with_nothing_lost_goes_on_by_itself(
    server: PostgresServer, standby: PostgresServer, site: Site
) -> None:
    insert(site, 4, 6, "read before the switch")
    run(site)
    insert(site, 7, 9, "not read before the switch")
    catch_up(server, standby)
    server.stop()
    promote(standby)
    go_to(site, standby)
    insert(site, 10, 12, "after the switch")
    run(site)
    assert site.differences() == []
    insert(site, 13, 13, "on the new timeline")
    run(site)
    assert site.differences() == []


def test_a_promotion_that_loses_what_was_delivered_is_refused(
    server: PostgresServer, standby: PostgresServer, site: Site, tmp_path: Path
) -> None:
    standby.stop()
    insert(site, 4, 9, "lost")
    run(site)
    registered = watermark(site)
    _fail_over(site, server, standby)
    insert(site, 4, 5, "after")
    grow(site, registered)
    assert_refused_everywhere(
        site,
        tmp_path,
        "the log went back",
        "its timeline 2 left timeline 1 at",
        f"registered up to transaction 0x{registered.hex()}",
        "Subscribers are ahead: reporting up to 0x",
    )
    assert_reinitializes(site, tmp_path)


@pytest.mark.slow
def test_a_promotion_that_loses_only_what_is_not_ours_goes_on_by_itself(
    server: PostgresServer, standby: PostgresServer, site: Site
) -> None:
    standby.stop()
    grow(site, end_of_log(site))
    run(site)
    registered = end_of_log(site)
    _fail_over(site, server, standby)
    insert(site, 4, 9, "at positions that are registered")
    grow(site, registered)
    run(site)
    assert site.differences() == []


@pytest.mark.slow
@pytest.mark.parametrize("interrupted", [False, True])
def test_a_promotion_that_loses_what_a_snapshot_has_shown_is_refused(
    server: PostgresServer, standby: PostgresServer, site: Site, tmp_path: Path, interrupted: bool
) -> None:
    standby.stop()
    insert(site, 4, 9, "lost")
    if interrupted:
        request = SnapshotRequest(publication=site.publication, subscription="reporting")
        mark_for_reinitialization(request, site.topology)
        assert ChildJob(SNAPSHOT, site, Failpoint.RANGE_COMMITTED).killed()
    else:
        assert command(site, tmp_path, "reinitialize", "-s", "reporting").status == 0
    _fail_over(site, server, standby)
    assert_refused_everywhere(site, tmp_path, "Rows were copied from it as of", "timeline 2, left timeline 1 at")


@pytest.mark.slow
def test_the_old_primary_is_refused_after_a_promotion(
    server: PostgresServer, standby: PostgresServer, site: Site, tmp_path: Path
) -> None:
    catch_up(server, standby)
    promote(standby)
    go_to(site, standby)
    insert(site, 4, 6, "at the new primary")
    run(site)
    registered = watermark(site)
    go_to(site, server)
    insert(site, 4, 5, "at the old primary")
    grow(site, registered)
    assert_refused_everywhere(site, tmp_path, "the log went back", "its timeline 1 does not come from timeline 2")
    go_to(site, standby)
    insert(site, 7, 9, "at the new primary again")
    run(site)
    assert site.differences() == []
