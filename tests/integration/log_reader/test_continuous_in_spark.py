"""A continuous log reader in a lasting task of Spark's: asked to shut down, and killed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import DatabasesFactory
from support.continuous_reader import continuous_reader, follows, registered_commands, wait_for
from support.observed import assert_each_change_is_stored_once, audited_site, insert_transactions, make_transactions
from support.processes import command_of, kill, parent_of, process_ids
from support.site import Site

pytestmark = [pytest.mark.spark, pytest.mark.new_sessions]


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path, spark: Any) -> Site:
    return audited_site(databases(), tmp_path / "store", spark, step=None)


def test_it_reads_what_is_committed_and_stops_when_it_is_told(site: Site) -> None:
    with continuous_reader(site) as reader:
        make_transactions(site, 20)
        wait_for(lambda: registered_commands(site) > 20, 10.0)
        result = reader.stop()
    assert (result.error, result.transactions) == (None, 20)
    assert_each_change_is_stored_once(site)


def test_what_a_killed_worker_leaves_is_drained_and_the_log_followed_again(site: Site) -> None:
    with continuous_reader(site) as reader:
        insert_transactions(site, 3, 4)
        for pid in _workers():
            kill(pid)
        wait_for(lambda: not follows(site), 10.0)
        insert_transactions(site, 5)
        wait_for(lambda: follows(site), 30.0)
        insert_transactions(site, 6)
        wait_for(lambda: registered_commands(site) == 18, 10.0)
        assert reader.stop().error is None
    assert_each_change_is_stored_once(site)


def _workers() -> Iterator[int]:
    """Yield the Python workers of this process's JVM."""
    for pid in process_ids():
        daemon = parent_of(pid)
        are_sparks = all(b"pyspark.daemon" in command_of(it) for it in (pid, daemon))
        if are_sparks and os.getpid() in (parent_of(daemon), parent_of(parent_of(daemon))):
            yield pid
