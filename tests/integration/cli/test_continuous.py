"""`tranrepl run FILE --continuous`: agents run until a signal, side by side in one Spark application."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.continuous_run import running_continuously, three_servers, written
from support.observed import assert_each_change_was_made_once, audited_site, distribution_rows, wait_until
from support.processes import command_of, descendants, lives
from support.site import Site

pytestmark = pytest.mark.submit

FAIL_TWICE = """
CREATE SEQUENCE failures;
CREATE FUNCTION fail_twice() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.note = 'hard' AND nextval('failures') <= 2 THEN RAISE EXCEPTION 'not now'; END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER fail_twice BEFORE INSERT ON item FOR EACH ROW EXECUTE FUNCTION fail_twice();
"""


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    return audited_site(databases(), tmp_path / "store", step=None)


def _has(site: Site, number: int) -> bool:
    return site.at_subscriber(f"SELECT 1 FROM item WHERE id = {number}") != []


def _arrives(site: Site, number: int, process: subprocess.Popen[bytes], note: str = "") -> None:
    site.at_publisher(f"INSERT INTO item VALUES ({number}, 0, '{note}')")
    wait_until(lambda: _has(site, number), lambda: process.poll() is None)


@pytest.mark.slow
def test_agents_deliver_continuously_through_a_failed_batch_and_a_changed_file_until_they_are_asked_to_end(
    site: Site, tmp_path: Path
) -> None:
    site.at_subscriber(FAIL_TWICE)
    file = written(site, tmp_path)
    with (tmp_path / "output").open("wb") as output, running_continuously(site, file, output) as process:
        for number in (1, 2):
            _arrives(site, number, process)
        runs = "SELECT count(*) FROM msdistribution_history"
        _arrives(site, 3, process, "hard")
        _arrives(site, 4, process)
        (before,) = distribution_rows(site, runs)
        # What cannot be used changes nothing.
        file.write_text("publication: [", encoding="utf-8")
        _arrives(site, 5, process)
        written(site, tmp_path, polling_interval=0.2)
        wait_until(lambda: "restarting" in _said(tmp_path), lambda: process.poll() is None)
        _arrives(site, 6, process)
        # The agents that end may still have delivered it.
        wait_until(lambda: distribution_rows(site, runs) > [before], lambda: process.poll() is None)
        started = descendants(process.pid)
        assert len(started) > 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0, _said(tmp_path)
    assert_each_change_was_made_once(site)
    said = _said(tmp_path)
    assert "trying again over a single connection" in said
    assert "not now" in said
    assert "ending after the current batches" in said
    assert [it for it in started if lives(it)] == []


def _said(folder: Path) -> str:
    return (folder / "output").read_text(encoding="utf-8")


def _has_driver(process: int) -> bool:
    return any(b"SparkSubmit" in command_of(it) for it in descendants(process))


def test_a_second_interrupt_kills(site: Site, tmp_path: Path) -> None:
    file = written(site, tmp_path)
    with (tmp_path / "output").open("wb") as output, running_continuously(site, file, output) as process:
        wait_until(lambda: _has_driver(process.pid), lambda: process.poll() is None)
        started = descendants(process.pid)
        for it in started:
            # What does not go on cannot end after what is at hand. The launcher may have ended.
            with suppress(ProcessLookupError):
                os.kill(it, signal.SIGSTOP)
        process.send_signal(signal.SIGINT)
        wait_until(lambda: "ending after the current batches" in _said(tmp_path))
        process.send_signal(signal.SIGINT)
        assert process.wait(60) != 0
    wait_until(lambda: not any(lives(it) for it in started))


@pytest.mark.slow
def test_a_second_one_waits_until_the_first_ends_and_takes_its_place(site: Site, tmp_path: Path) -> None:
    file, waits = written(site, tmp_path), "another `tranrepl run FILE --continuous` runs the agents"
    with (
        (tmp_path / "first").open("wb") as first_output,
        running_continuously(site, file, first_output) as first,
        (tmp_path / "output").open("wb") as output,
    ):
        _arrives(site, 1, first)
        with running_continuously(site, file, output) as second:
            wait_until(lambda: waits in _said(tmp_path), lambda: second.poll() is None)
            _arrives(site, 2, first)
            assert descendants(second.pid) == set()
            # Its driver may still be ending when the second one begins.
            first.kill()
            # It may be asked to stop before its driver has started: the first one's may deliver that.
            _arrives(site, 3, second)
            second.send_signal(signal.SIGTERM)
            assert second.wait(120) == 0, _said(tmp_path)
    assert _said(tmp_path).count(waits) == 1
    assert_each_change_was_made_once(site)


@pytest.mark.slow
@pytest.mark.new_sessions
def test_agents_go_on_by_themselves_after_each_database_was_away(server_folder: Path, tmp_path: Path) -> None:
    with three_servers(server_folder / "away") as servers:
        site = audited_site(servers.databases, tmp_path / "store", step=None)
        file = written(site, tmp_path, polling_interval=0.2)
        with (tmp_path / "output").open("wb") as output, running_continuously(site, file, output) as process:
            _arrives(site, 1, process)
            _without(servers.publisher.kill, servers.publisher.start, ["log reader"], tmp_path)
            _arrives(site, 2, process)
            both = ["log reader", "reporting"]
            _without(servers.distribution.stop, servers.distribution.start, both, tmp_path)
            _arrives(site, 3, process)

            def end_subscriber() -> None:
                servers.subscriber.kill()
                site.at_publisher("UPDATE item SET note = 'while it was away'")

            _without(end_subscriber, servers.subscriber.start, ["reporting"], tmp_path)
            _arrives(site, 4, process)
            process.send_signal(signal.SIGTERM)
            assert process.wait(120) == 0, _said(tmp_path)
        assert_each_change_was_made_once(site)


def _without(end: Callable[[], None], start: Callable[[], object], agents: list[str], folder: Path) -> None:
    """End a server, and start it again when the agents have tried again some times. Each says it once, and that it goes
    on."""
    before = _said(folder)

    def said() -> list[str]:
        return _said(folder).removeprefix(before).splitlines()

    end()
    wait_until(
        lambda: all(any(it.startswith(f"{name}: ") and "trying again" in it for it in said()) for name in agents)
    )
    time.sleep(4)
    start()
    wait_until(lambda: all(f"{name}: goes on" in said() for name in agents))
    assert len([it for it in said() if "Connection refused" in it]) <= len(agents)


def _has_failed(name: str, said: list[str]) -> bool:
    return any(it.startswith(f"{name}: ") and "trying again" in it for it in said)
