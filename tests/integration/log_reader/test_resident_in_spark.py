"""A log reader that stays up in a lasting task of Spark's: told to stop, not hearing it, and killed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import DatabasesFactory
from support.observed import assert_each_change_is_stored_once, audited_site, make_transactions
from support.process_table import command_of, kill, parent_of, process_ids
from support.resident_reader import follows, registered_commands, resident_reader, wait_for
from support.site import Site
from tranrepl.errors import ErrorKind
from tranrepl.log_reader import resident

pytestmark = [pytest.mark.spark, pytest.mark.new_sessions]


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path, spark: Any) -> Site:
    return audited_site(databases(), tmp_path / "store", spark, step=None)


def test_it_reads_what_is_committed_and_stops_when_it_is_told(site: Site) -> None:
    with resident_reader(site) as reader:
        make_transactions(site, 20)
        wait_for(lambda: registered_commands(site) > 20, 10.0)
        result = reader.stop()
    assert (result.error, result.transactions) == (None, 20)
    assert_each_change_is_stored_once(site)


@pytest.mark.slow
def test_a_task_that_does_not_hear_is_cancelled(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resident, "_GIVE_UP_SECONDS", 2.0)
    monkeypatch.setattr(resident, "notify", lambda *_: None)
    with resident_reader(site) as reader:
        make_transactions(site, 20)
        wait_for(lambda: registered_commands(site) > 20, 10.0)
        assert reader.stop().error is None
    assert not follows(site)
    assert_each_change_is_stored_once(site)


def test_a_killed_worker_is_a_transient_error_and_the_next_run_goes_on(site: Site) -> None:
    with resident_reader(site) as reader:
        make_transactions(site, 20)
        for pid in _workers():
            kill(pid)
        error = reader.result().error
    assert error is not None
    assert error.kind is ErrorKind.TRANSIENT
    with resident_reader(site):
        wait_for(lambda: registered_commands(site) > 20, 10.0)
    assert_each_change_is_stored_once(site)


def _workers() -> Iterator[int]:
    """Yield the Python workers of this process's JVM."""
    for pid in process_ids():
        daemon = parent_of(pid)
        are_sparks = all(b"pyspark.daemon" in command_of(it) for it in (pid, daemon))
        if are_sparks and os.getpid() in (parent_of(daemon), parent_of(parent_of(daemon))):
            yield pid
