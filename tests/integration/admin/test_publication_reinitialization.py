"""`tranrepl reinitialize FILE` is the way back from every state in which slot, registration and watermarks do not fit
together, with the Publisher's rows or with those that the Subscribers have."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.embedded_postgres import PostgresServer, ServerSettings
from support.item_site import (
    DATABASE,
    advance_slot,
    assert_goes_on,
    assert_refused_everywhere,
    assert_reinitializes,
    command,
    drop_slot,
    go_to,
    insert,
    item_site,
    recreate_slot,
    run,
)
from support.observed import slot_position, stored_commands, watermark
from support.processes import unprivileged
from support.site import Site, execute
from tranrepl.admin.check import check
from tranrepl.admin.early_warnings import WarningKind, new_early_warnings
from tranrepl.errors import ConfigurationError, TransientError

Break = Callable[[Site], None]


@pytest.fixture
def site(postgres: PostgresServer, databases: DatabasesFactory, tmp_path: Path) -> Site:
    others = databases()
    site = item_site(postgres, others, tmp_path, others.publisher.database or "")
    insert(site, 1, 3, "before")
    run(site)
    return site


def _recreate_slot(site: Site) -> None:
    recreate_slot(site, "INSERT INTO item VALUES (50, 'while there was none')")


def _restore_distribution_database(site: Site) -> None:
    """Put the distribution database back to before the last run."""
    tables = ("mspublications", "msrepl_batches")
    kept = [f"CREATE TABLE kept_{it} AS SELECT * FROM {it}" for it in tables]
    execute(site.databases.distribution, *kept)
    insert(site, 60, 62, "delivered since")
    run(site)
    columns = "registered_to, registered_xact_seqno, registered_commit_time"
    execute(
        site.databases.distribution,
        "DELETE FROM msrepl_batches b WHERE NOT EXISTS (SELECT FROM kept_msrepl_batches k WHERE k.folder = b.folder)",
        f"UPDATE mspublications p SET ({columns}) = (SELECT {columns} FROM kept_mspublications)",
    )


_BREAKS: tuple[tuple[Break, str], ...] = (
    (drop_slot, "does not exist"),
    (_recreate_slot, "changes between the two are lost"),
    (advance_slot, "changes between the two are lost"),
    (_restore_distribution_database, "the distribution database was restored from a backup"),
)


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(("broken", "said"), _BREAKS, ids=lambda it: getattr(it, "__name__", ""))
def test_every_state_is_refused_with_the_way_that_works(site: Site, tmp_path: Path, broken: Break, said: str) -> None:
    insert(site, 4, 6, "not read")
    broken(site)
    assert_refused_everywhere(site, tmp_path, said)
    assert_reinitializes(site, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("broken", "said"), _BREAKS, ids=lambda it: getattr(it, "__name__", ""))
def test_rows_that_are_the_publishers_already_stay(site: Site, tmp_path: Path, broken: Break, said: str) -> None:
    broken(site)
    _make_equal_by_hand(site)
    assert_refused_everywhere(site, tmp_path, said)
    outcome = command(site, tmp_path, "reinitialize", "--log-reader")
    assert outcome.status == 0, outcome.err
    assert "snapshot" not in outcome.out + outcome.err
    assert_goes_on(site, tmp_path)
    assert {it.command for it in stored_commands(site)} == {
        f"{{CALL [sp_MSins_publicitem] ({n},'later')}}" for n in (1001, 1002, 1003)
    }


def _make_equal_by_hand(site: Site) -> None:
    rows = site.at_publisher("SELECT id, note FROM item")
    site.at_subscriber("TRUNCATE item", *(f"INSERT INTO item VALUES ({row[0]}, '{row[1]}')" for row in rows))


def test_a_distribution_database_that_is_lost_is_set_up_and_begins_anew(
    site: Site, databases: DatabasesFactory, tmp_path: Path
) -> None:
    insert(site, 4, 6, "not read")
    new = databases().distribution
    site.databases = replace(site.databases, distribution=new)
    site.connections["distribution"] = new
    assert command(site, tmp_path, "setup").status == 0
    site.take_snapshot()
    run(site)
    assert_goes_on(site, tmp_path)


def test_reinitialization_is_refused_where_rows_must_stay(site: Site, tmp_path: Path) -> None:
    site.publication = site.publication.model_copy(
        update={"articles": [it.model_copy(update={"pre_creation_cmd": "none"}) for it in site.publication.articles]}
    )
    before = slot_position(site), watermark(site)
    outcome = command(site, tmp_path, "reinitialize")
    assert outcome.status == 1
    assert "pre_creation_cmd" in outcome.err
    assert (slot_position(site), watermark(site)) == before
    insert(site, 4, 6, "after")
    run(site)
    assert site.differences() == []


@pytest.mark.slow
def test_nothing_is_delivered_before_an_interrupted_beginning_ends(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kill `reinitialize` between any two of its steps, deliver, and repeat it."""
    for step in ("forget_log", "set_up", "start_watermark"):
        insert(site, 4, 6, "not read")
        site.at_publisher("DELETE FROM item WHERE id IN (4, 5, 6)")
        before = site.at_subscriber("SELECT * FROM item ORDER BY 1")
        with monkeypatch.context() as patch:
            _interrupt(patch, step)
            with pytest.raises(_InterruptedError):
                command(site, tmp_path, "reinitialize")
        with pytest.raises(ConfigurationError):
            run(site)
        assert site.at_subscriber("SELECT * FROM item ORDER BY 1") == before
        assert_reinitializes(site, tmp_path)
        site.at_publisher("DELETE FROM item WHERE id > 1000")


class _InterruptedError(Exception):
    pass


def _interrupt(patch: pytest.MonkeyPatch, step: str) -> None:
    from tranrepl.distributor.database.publications import Publications
    from tranrepl.publisher.postgres.publisher import PostgresPublisher

    def stop(*_: object, **__: object) -> None:
        raise _InterruptedError

    owner = Publications if step == "start_watermark" else PostgresPublisher
    patch.setattr(owner, step, stop)


# Servers of their own


def test_a_slot_that_was_invalidated(own_server: PostgresServer, databases: DatabasesFactory, tmp_path: Path) -> None:
    site = item_site(own_server, databases(), tmp_path, DATABASE)
    insert(site, 1, 3, "before")
    run(site)
    site.at_publisher("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'", "SELECT pg_reload_conf()")
    insert(site, 4, 6, "not read")
    site.at_publisher("CREATE TABLE other (filler text)")
    for _ in range(3):
        site.at_publisher(
            "INSERT INTO other SELECT repeat('x', 1000) FROM generate_series(1, 5000)", "SELECT pg_switch_wal()"
        )
    site.at_publisher("CHECKPOINT")
    assert_refused_everywhere(site, tmp_path, "is invalidated", "max_slot_wal_keep_size")
    assert_reinitializes(site, tmp_path)


def test_a_slot_that_nobody_has_read_for_too_long(
    own_server: PostgresServer, databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = item_site(own_server, databases(), tmp_path, DATABASE)
    run(site)
    assert not [it for it in check(site.topology).warnings if "idle_replication_slot_timeout" in it]
    site.at_publisher("ALTER SYSTEM SET idle_replication_slot_timeout = '2s'", "SELECT pg_reload_conf()")
    insert(site, 1, 3, "not read")
    time.sleep(2.1)
    (warned,) = [it for it in check(site.topology).warnings if "idle_replication_slot_timeout is 0:00:02" in it]
    assert "no schedule says when runs come" in warned
    (told,) = [it for it in new_early_warnings(site.topology) if it.kind is WarningKind.LOG_IN_DANGER]
    assert "after 0:00:02 (idle_replication_slot_timeout)" in told.text
    site.at_publisher("CHECKPOINT")
    assert_refused_everywhere(site, tmp_path, "is invalidated (idle_timeout): nobody has read it", "pg_reload_conf")
    site.at_publisher("ALTER SYSTEM SET idle_replication_slot_timeout = 0", "SELECT pg_reload_conf()")
    assert_reinitializes(site, tmp_path)


@pytest.fixture
def upgraded(own_server: PostgresServer, server_folder: Path, tmp_path: Path) -> Iterator[Callable[[], PostgresServer]]:
    """Yield a function that upgrades the server with its slot to a new cluster, by `pg_upgrade`."""
    new = PostgresServer(ServerSettings(server_folder / f"{tmp_path.name}_new", fsync=False))

    def upgrade() -> PostgresServer:
        with new:
            pass
        own_server.stop()
        program = new.settings.bindir / "pg_upgrade"
        paths = [
            *("--old-datadir", own_server.settings.data, "--new-datadir", new.settings.data),
            *("--old-bindir", program.parent, "--new-bindir", program.parent, "--username", "postgres", "--no-sync"),
            *("--old-options=-c wal_level=logical", "--new-options=-c wal_level=logical -c max_replication_slots=20"),
            *("--socketdir", new.settings.data),
        ]
        for data in (own_server.settings.data, new.settings.data):
            _trust_everybody(data)
        done = subprocess.run(
            unprivileged([str(program), *map(str, paths)]),
            check=False,
            capture_output=True,
            text=True,
            cwd=new.settings.data,
        )
        assert done.returncode == 0, done.stdout
        return new.start()

    yield upgrade
    new.stop()


def _trust_everybody(data: Path) -> None:
    (data / "pg_hba.conf").write_text("local all all trust\nhost all all 127.0.0.1/32 trust\n", encoding="ascii")


@pytest.mark.slow
def test_a_publisher_that_pg_upgrade_has_made(
    own_server: PostgresServer,
    upgraded: Callable[[], PostgresServer],
    databases: DatabasesFactory,
    tmp_path: Path,
) -> None:
    site = item_site(own_server, databases(), tmp_path, DATABASE)
    insert(site, 1, 3, "before")
    run(site)
    go_to(site, upgraded())
    assert_refused_everywhere(site, tmp_path, "one that pg_upgrade has made")
    outcome = command(site, tmp_path, "reinitialize", "--log-reader")
    assert outcome.status == 0, outcome.err
    assert_goes_on(site, tmp_path)


def test_a_setup_that_waits_for_an_open_transaction_ends_and_names_it(
    postgres: PostgresServer, databases: DatabasesFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tranrepl.publisher.postgres.slot._SLOT_TIMEOUT", "2s")
    others = databases()
    with postgres.connect(others.publisher.database or "") as session:
        session.execute("CREATE TABLE other (id int)")
        session.execute("BEGIN")
        session.execute("INSERT INTO other VALUES (1)")
        pid = session.info.backend_pid
        with pytest.raises(TransientError, match=rf"the oldest is that of process {pid} \(postgres, tranrepl tests\)"):
            item_site(postgres, others, tmp_path, others.publisher.database or "")
