"""`tranrepl run FILE --continuous`: agents stay up until a signal, side by side in one Spark application."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
import yaml

from conftest import DatabasesFactory
from support.databases import Databases
from support.observed import assert_each_change_was_made_once, audited_site, distribution_rows, wait_until
from support.process_table import parent_of, process_ids, session_of
from support.shell import COMMAND
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


def _written(site: Site, folder: Path, **changes: object) -> Path:
    path = folder / "purchasing.yaml"
    path.write_text(yaml.safe_dump({**site.publication.model_dump(mode="json"), **changes}), encoding="utf-8")
    return path


@contextmanager
def _continuous(file: Path, databases: Databases, output: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    environment: Mapping[str, str] = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "TRANREPL"))},
        **databases.environment,
    }
    process = subprocess.Popen(
        [str(COMMAND), "run", str(file), "--continuous", "--master", "local[1]"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _has(site: Site, number: int) -> bool:
    return site.at_subscriber(f"SELECT 1 FROM item WHERE id = {number}") != []


def _arrives(site: Site, number: int, process: subprocess.Popen[bytes], note: str = "") -> None:
    site.at_publisher(f"INSERT INTO item VALUES ({number}, 0, '{note}')")
    wait_until(lambda: _has(site, number), lambda: process.poll() is None)


@pytest.mark.slow
def test_agents_stay_up_through_a_failed_batch_and_a_changed_file_until_they_are_asked_to_end(
    site: Site, tmp_path: Path
) -> None:
    site.at_subscriber(FAIL_TWICE)
    file = _written(site, tmp_path)
    with (tmp_path / "output").open("wb") as output, _continuous(file, site.databases, output) as process:
        for number in (1, 2):
            _arrives(site, number, process)
        runs = "SELECT count(*) FROM msdistribution_history"
        _arrives(site, 3, process, "hard")
        _arrives(site, 4, process)
        (before,) = distribution_rows(site, runs)
        # What cannot be used changes nothing.
        file.write_text("publication: [", encoding="utf-8")
        _arrives(site, 5, process)
        _written(site, tmp_path, polling_interval=0.2)
        wait_until(lambda: "beginning anew" in _said(tmp_path), lambda: process.poll() is None)
        _arrives(site, 6, process)
        # The agents that end may still have delivered it.
        wait_until(lambda: distribution_rows(site, runs) > [before], lambda: process.poll() is None)
        started = _descendants(process.pid)
        assert len(started) > 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0, _said(tmp_path)
    assert_each_change_was_made_once(site)
    said = _said(tmp_path)
    assert "trying again over a single connection" in said
    assert "not now" in said
    assert "ending after what is at hand" in said
    assert [it for it in started if _lives(it)] == []


def _said(folder: Path) -> str:
    return (folder / "output").read_text(encoding="utf-8")


def test_a_second_interrupt_kills(site: Site, tmp_path: Path) -> None:
    file = _written(site, tmp_path)
    with (tmp_path / "output").open("wb") as output, _continuous(file, site.databases, output) as process:
        wait_until(lambda: len(_descendants(process.pid)) > 1, lambda: process.poll() is None)
        started = _descendants(process.pid)
        process.send_signal(signal.SIGINT)
        wait_until(lambda: "ending after what is at hand" in _said(tmp_path))
        process.send_signal(signal.SIGINT)
        assert process.wait(60) != 0
    wait_until(lambda: not any(_lives(it) for it in started))


def _descendants(process: int) -> set[int]:
    found, parents = {process}, {it: parent_of(it) for it in process_ids()}
    while more := {it for it, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {process}


def _lives(process: int) -> bool:
    return session_of(process) is not None
