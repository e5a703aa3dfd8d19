"""What `tranrepl status` says: when a server is down, inside a batch, after errors, of several files."""

from __future__ import annotations

import json
import re
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import DatabaseFactory, DatabasesFactory
from support.databases import connection_environment
from support.observed import ITEM, distribution_rows, insert_transactions, watermark
from support.proxy import Proxy
from support.shell import Outcome, in_a_terminal, publication_file, typed
from support.site import Site, execute
from support.spark_here import SparkHere
from tranrepl.admin.skip_and_retry import skip_transaction
from tranrepl.admin.status import PublicationStatus, SubscriptionStatus, status

_SUBSCRIPTIONS = (
    {"name": "reporting", "connection": "subscriber", "subscription_streams": 1},
    {"name": "archive", "connection": "archive", "subscription_streams": 1, "skip_errors": [20598]},
)


@pytest.fixture
def site(databases: DatabasesFactory, database: DatabaseFactory, tmp_path: Path) -> Site:
    """Return a site of one Publisher and two Subscribers."""
    site = Site(databases(), tmp_path / "store", ["public.item"], SparkHere(), _SUBSCRIPTIONS)
    site.connections["archive"] = database("archive")
    site.at_publisher(ITEM)
    site.set_up()
    return site


def _file(site: Site, folder: Path, **changes: Any) -> Path:
    folder.mkdir(exist_ok=True)
    subscriptions = [{"sync_type": "replication_support_only", **it} for it in _SUBSCRIPTIONS]
    store = {"connection": "distribution", "store": site.publication.distributor.store}
    settings = {"subscriptions": subscriptions, "distributor": store, **changes}
    return publication_file(folder, [{"source": "public.item"}], **settings)


def _typed(site: Site, *arguments: str | Path) -> Outcome:
    return typed("status", *arguments, environment=connection_environment(site.connections.values()))


def _facts(site: Site, file: Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(_typed(site, file, "--json").out)
    return facts


def _status(site: Site) -> PublicationStatus:
    return status(site.topology)


def _reporting(site: Site) -> SubscriptionStatus:
    return _status(site).subscriptions[0]


# Servers that are away

_AWAY = {
    "publisher": "the Publisher is away: connection publisher (",
    "distribution": "the distribution database is away: connection distribution (",
    "archive": "the Subscriber is away: connection archive (",
}


@contextmanager
def _away(site: Site, names: tuple[str, ...]) -> Iterator[None]:
    """Put these databases behind a network that is down."""
    with ExitStack() as stack:
        proxies = {name: stack.enter_context(Proxy(site.connections[name])) for name in names}
        before = dict(site.connections)
        site.connections |= {name: it.connection for name, it in proxies.items()}
        for proxy in proxies.values():
            proxy.break_down()
        yield
        site.connections.clear()
        site.connections |= before


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    "away", [("publisher",), ("distribution",), ("archive",), ("publisher", "distribution"), tuple(_AWAY)]
)
def test_a_server_that_is_away_is_named_and_the_others_are_told(
    site: Site, tmp_path: Path, away: tuple[str, ...]
) -> None:
    file = _file(site, tmp_path)
    insert_transactions(site, 2)
    site.run()
    insert_transactions(site, 1, 3)
    site.read_log().raise_error()
    assert _typed(site, file).status == 0
    stood = watermark(site).hex()
    with _away(site, away):
        outcome, facts = _typed(site, file), _facts(site, file)
    assert (outcome.status, outcome.err) == (2, "")
    for name, said in _AWAY.items():
        assert (said in outcome.out) == (name in away), (name, outcome.out)
    reader, (reporting, archive) = facts["log_reader"], facts["subscriptions"]
    assert (reader["slot"], reader["unread_log_bytes"] is None) == (
        (None, True) if "publisher" in away else ("ready", False)
    )
    known = "distribution" not in away
    assert [it["state"] for it in (reporting, archive)] == (["Idle"] * 2 if known else [None, None])
    assert [it["undelivered_commands"] for it in (reporting, archive)] == ([4, 4] if known else [None, None])
    # Without Publisher and distribution database nobody knows whose watermark is whose.
    assert reporting["watermark"] == (stood if known or "publisher" not in away else None)
    if away == ("archive",):
        assert f"watermark 0x{archive['watermark']}, as of its last run" in outcome.out
    assert len(facts["wrong"]) == len(away), facts["wrong"]


def test_a_server_that_never_answers_is_waited_for_only_so_long(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        site.connections["archive"] = replace(site.connections["archive"], port=silent.getsockname()[1])
        started = time.monotonic()
        found = status(site.topology, patience=1.5)
        # The driver would wait for 15 s.
        assert time.monotonic() - started < 14
    reporting, archive = found.subscriptions
    assert "no answer within 1.5 s" in (archive.subscriber_problem or "")
    assert (reporting.subscriber_problem, reporting.state) == (None, "Uninitialized")


def test_a_subscription_that_is_not_set_up_does_not_hide_the_others(site: Site, tmp_path: Path) -> None:
    added = [{"name": "added", "connection": "subscriber", "sync_type": "replication_support_only"}]
    file = _file(site, tmp_path, subscriptions=[*added, {"sync_type": "replication_support_only", **_SUBSCRIPTIONS[0]}])
    outcome = _typed(site, file)
    assert outcome.status == 2
    text = " ".join(outcome.out.split())
    assert "added: unknown" in text
    assert "subscription added of publication purchasing is not set up" in text
    assert "reporting: Uninitialized" in text


# Numbers


def test_what_is_undelivered_is_counted_inside_a_batch(site: Site) -> None:
    insert_transactions(site, 2, 3, 4)
    site.read_log().raise_error()
    insert_transactions(site, 5)
    site.read_log().raise_error()
    assert (_reporting(site).undelivered_transactions, _reporting(site).undelivered_commands) == (4, 14)
    ((first,),) = distribution_rows(site, "SELECT first_xact_seqno FROM msrepl_batches ORDER BY 1 LIMIT 1")
    skip_transaction(site.topology, "reporting", bytes(first))
    distribution_rows(site, "UPDATE msrepl_batches SET first_commit_time = now() - interval '1 day'")
    with site.topology.distributor() as database:
        (overview,) = database.overview.of(["purchasing"], timedelta(days=1), 1)
    known = next(it for it in overview.subscriptions if it.subscription == "reporting")
    assert (known.backlog.commands, known.backlog.at_most) == (14, True), "Replication Monitor reads no file for it"
    inside = _reporting(site)
    assert (inside.undelivered_transactions, inside.undelivered_commands) == (3, 12)
    assert not inside.undelivered_at_most
    assert (inside.latency_seconds or 1e9) < 3600, "the age of what waits first, and not of the batch"
    shutil.rmtree(Path(site.publication.distributor.store))
    unreadable = _reporting(site)
    assert (unreadable.undelivered_transactions, unreadable.undelivered_commands) == (4, 14)
    assert unreadable.undelivered_at_most


def test_a_transaction_of_many_pieces_is_counted_once(site: Site) -> None:
    # Stored commands are read a thousand at a time.
    insert_transactions(site, 1, 2500, 1)
    site.read_log().raise_error()
    ((first,),) = distribution_rows(site, "SELECT first_xact_seqno FROM msrepl_batches")
    skip_transaction(site.topology, "reporting", bytes(first))
    inside = _reporting(site)
    assert (inside.undelivered_transactions, inside.undelivered_commands) == (2, 2501)


def test_an_idle_subscription_tells_its_last_latency(site: Site, tmp_path: Path) -> None:
    file = _file(site, tmp_path)
    insert_transactions(site, 1)
    site.run()
    outcome = _typed(site, file)
    assert outcome.status == 0
    said = rf"^reporting: Idle\n  watermark 0x{watermark(site).hex()}\n  last latency [\d.]+ m?s$"
    assert re.search(said, outcome.out, re.MULTILINE)
    reporting = _reporting(site)
    assert (reporting.latency_seconds, (reporting.last_latency_seconds or 0.0) > 0) == (None, True)


def test_the_slot_and_the_log_that_it_retains_are_told(site: Site, tmp_path: Path) -> None:
    file = _file(site, tmp_path)
    reader = _status(site).log_reader
    ((name, retained),) = site.at_publisher(
        "SELECT slot_name, pg_current_wal_lsn() - restart_lsn FROM pg_replication_slots "
        "WHERE database = current_database()"
    )
    assert (reader.slot_name, reader.slot) == (name, "ready")
    assert reader.retained is not None
    assert reader.retained.wal_status == "reserved"
    assert 0 < (reader.retained.bytes or 0) <= retained
    assert "up to date then" not in _typed(site, file).out
    for how in ("Idle", "Succeeded"):
        site.read_log().raise_error()
        outcome = _typed(site, file)
        assert re.search(rf"{how} +\S+ \S+ +up to date then; \S+ \w+ of log since", outcome.out)
        insert_transactions(site, 1)
    assert re.search(rf"slot {name}: ready, retains \S+ \w+ of log \(reserved\)", outcome.out)
    site.at_publisher(f"SELECT pg_drop_replication_slot('{name}')")
    outcome = _typed(site, file)
    assert outcome.status == 2
    assert f"slot {name}: it does not exist" in outcome.out
    assert f"`tranrepl reinitialize {file}`" in outcome.out


# Errors


def test_an_error_has_its_place_and_is_healed_by_what_comes_after(site: Site, tmp_path: Path) -> None:
    file = _file(site, tmp_path)
    insert_transactions(site, 1, 1)
    site.run()
    for by_hand in (True, False):
        site.at_subscriber("DELETE FROM item WHERE id = 1")
        site.at_publisher("UPDATE item SET note = 'a' || note WHERE id = 1", "UPDATE item SET note = 'b' WHERE id = 2")
        site.read_log().raise_error()
        assert site.deliver().error is not None
        failed = _typed(site, file)
        error = _reporting(site).last_error
        assert error is not None
        assert (failed.status, error.healed, error.number, error.command_id) == (2, False, "20598", 1)
        place = f"last error 20598 in 0x{error.xact_seqno}, command 1, article public.item at 2"
        assert place in failed.out
        assert "The row was not found" in failed.out
        steps = [it.strip() for it in failed.out.splitlines() if it.startswith("    tranrepl ")]
        assert steps == [
            f"tranrepl browse {file} --from 0x{error.xact_seqno} --to 0x{error.xact_seqno}",
            f"tranrepl run {file} -s reporting",
            f"tranrepl skip {file} -s reporting --xact-seqno 0x{error.xact_seqno}",
            f"tranrepl validate {file} -s reporting --article public.item --repair",
        ]
        assert [
            it for it in _facts(site, file)["subscriptions"][0]["last_error"]["next_steps"] if it[0] != "#"
        ] == steps
        if by_hand:
            long = "row_key = 'id = ' || repeat('x', 5000), error_text = error_text || ' id = ' || repeat('x', 5000)"
            distribution_rows(site, f"UPDATE msrepl_errors SET {long} RETURNING id")
            assert re.search(r"not found.* id = x{195}… \(5,005 characters\)", _typed(site, file).out)
            skip_transaction(site.topology, "reporting", bytes.fromhex(error.xact_seqno or ""))
        else:
            site.at_subscriber("INSERT INTO item VALUES (1, 1, 'item')")
        site.deliver().raise_error()
        healed = _typed(site, file)
        assert (healed.status, place in healed.out) == (0, True)
        over = "skipped" if by_hand else "resolved"
        assert re.search(rf"last error 20598 .*: {over}$", healed.out, re.MULTILINE)
        assert "The row was not found" not in healed.out
        assert "    tranrepl " not in healed.out


def test_skipped_commands_are_counted_and_are_no_error(site: Site, tmp_path: Path) -> None:
    file = _file(site, tmp_path)
    insert_transactions(site, 3)
    site.run()
    execute(site.connections["archive"], "DELETE FROM item WHERE id < 3")
    site.at_publisher("UPDATE item SET note = 'x'")
    site.read_log().raise_error()
    result = site.deliver("archive")
    assert (result.error, result.skipped) == (None, 2)
    archive = _status(site).subscriptions[1]
    assert archive.skipped is not None
    assert (archive.skipped.commands, archive.skipped.within_hours, archive.last_error) == (2, 48, None)
    outcome = _typed(site, file)
    assert outcome.status == 0
    assert "  2 commands skipped (skip_errors) in the last 48 hours, the last one 20598 in 0x" in outcome.out
    distribution_rows(site, "UPDATE msrepl_errors SET time = now() - interval '49 hours'")
    assert "commands skipped" not in _typed(site, file).out


# Several files


def test_several_files_or_a_folder_are_told_at_once(site: Site, tmp_path: Path) -> None:
    file = _file(site, tmp_path / "publications")
    broken = file.with_name("broken.yaml")
    broken.write_text("publication: [", encoding="utf-8")
    other = file.with_name("other.yaml")
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    other.write_text(yaml.safe_dump({**document, "publication": "other"}), encoding="utf-8")
    for arguments in ([file.parent], [file, broken, other]):
        outcome = _typed(site, *arguments)
        assert outcome.status == 1
        assert "reporting: Uninitialized" in outcome.out
        assert f"{broken}" in outcome.err
        assert "publication other is not set up" in outcome.err
    listed = json.loads(_typed(site, file.parent, "--json").out)
    assert [(Path(it["file"]).name, "error" in it) for it in listed] == [
        ("broken.yaml", True),
        ("other.yaml", True),
        ("purchasing.yaml", False),
    ]
    with _away(site, ("archive",)):
        assert _typed(site, file.parent).status == 2
    (tmp_path / "empty").mkdir()
    empty = _typed(site, tmp_path / "empty")
    assert (empty.status, "no settings file (*.yaml) is in this folder" in empty.err) == (1, True)


# A terminal of 80 columns

_LONG = "reporting_of_all_regions_in_production"


def test_nothing_is_cut_in_80_columns(databases: DatabasesFactory, tmp_path: Path) -> None:
    names = [f"{_LONG}_{number}" for number in range(1, 4)]
    subscriptions = [{"name": it, "connection": it, "sync_type": "replication_support_only"} for it in names]
    found = databases()
    site = Site(found, tmp_path / "store", ["public.item"], SparkHere(), subscriptions)
    site.connections |= {it: replace(found.subscriber, connection_id=it) for it in names}
    site.at_publisher(ITEM)
    site.set_up()
    insert_transactions(site, 1)
    site.read_log().raise_error()
    site.deliver(names[0]).raise_error()
    site.at_subscriber("DELETE FROM item")
    site.at_publisher("UPDATE item SET note = 'x'")
    site.read_log().raise_error()
    assert site.deliver(names[0]).error is not None
    error = _reporting(site).last_error
    assert error is not None
    file = publication_file(tmp_path, [{"source": "public.item"}], subscriptions=subscriptions)
    with _away(site, (names[2],)):
        shown = _in_80_columns(file, connection_environment(site.connections.values()))
    lines = shown.splitlines()
    # A command is not wrapped: it could not be pasted then.
    assert max(len(it) for it in lines if not it.startswith("    ")) <= 80
    assert "…" not in shown
    for seqno in (watermark(site, names[0]).hex(), error.xact_seqno):
        assert f"0x{seqno}" in shown
    assert f"slot {_status(site).log_reader.slot_name}: ready" in shown
    for name in names:
        assert f"{name}: " in shown
    # Below the name, every line of what is said of it is indented.
    said = lines[lines.index("log reader") + 1 :]
    assert all(it.startswith(("  ", _LONG)) for it in said if it)
    words = " ".join(shown.split())
    assert f"the Subscriber is away: connection {names[2]} (" in words


def _in_80_columns(file: Path, environment: Mapping[str, str]) -> str:
    with in_a_terminal("status", file, environment=environment, columns=80) as terminal:
        shown = "".join(terminal)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown).replace("\r\n", "\n")
