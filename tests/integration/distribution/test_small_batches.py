"""A backlog of many batches of a few transactions each, as a log reader leaves it that looks every few seconds."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from conftest import DatabasesFactory
from support.equality import differing_rows
from support.failing_jobs import error_of
from support.observed import (
    assert_each_change_was_made_once,
    audited_site,
    commit_site,
    commits,
    distribution_rows,
    insert_transactions,
    make_transactions,
    watermark,
)
from support.site import Site
from support.spark_here import SparkHere
from support.stored_batches import store_in_small_batches
from tranrepl.distribution import stored_range
from tranrepl.subscriber.batching import commit_batches


def test_a_batch_a_transaction_is_delivered_like_one_batch(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = audited_site(databases(), tmp_path / "store", SparkHere(), step=None)
    make_transactions(site, 400)
    site.read_log().raise_error()
    assert store_in_small_batches(site) == 400
    assert site.deliver().transactions == 400
    assert_each_change_was_made_once(site)
    ((last,),) = distribution_rows(site, "SELECT max(last_xact_seqno) FROM msrepl_batches")
    assert watermark(site) == bytes(last)


def test_commit_batches_are_those_of_one_batch(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = commit_site(databases(), tmp_path, commit_batch_size=3, commit_batch_threshold=10)
    insert_transactions(site, 4, 4, 4, 10, 9, 1, 1, 1, 1, 1)
    site.read_log().raise_error()
    assert store_in_small_batches(site) == 10
    site.deliver().raise_error()
    assert commits(site) == [[1, 2, 3], [4], [5, 6], [7, 8, 9], [10]]
    assert differing_rows(site) == {}


@pytest.fixture
def numbered(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many commands the cutter has numbered, each time that it looked at one."""
    looks: list[int] = []
    original = commit_batches._seqnos
    monkeypatch.setattr(commit_batches, "_seqnos", lambda table: looks.append(len(table)) or original(table))  # type: ignore[func-returns-value]
    return lambda: sum(looks)


def test_each_command_is_looked_at_as_often_as_in_one_batch(
    databases: DatabasesFactory, tmp_path: Path, numbered: Callable[[], int]
) -> None:
    site = commit_site(databases(), tmp_path, commit_batch_size=100_000)
    insert_transactions(site, *[1] * 100)
    site.read_log().raise_error()
    store_in_small_batches(site)
    with mock.patch.object(stored_range, "_MOST_ROWS", 50):
        assert site.deliver().transactions == 100
    # Two pieces of fifty are read; the second one is looked at together with the first, and both again at the end.
    assert numbered() <= 50 + 100 + 100


@pytest.mark.parametrize("place", [0, 7])
def test_what_comes_before_a_small_batch_that_is_gone_is_delivered(
    databases: DatabasesFactory, tmp_path: Path, place: int
) -> None:
    site = audited_site(databases(), tmp_path / "store", SparkHere(), step=None)
    make_transactions(site, 12)
    site.read_log().raise_error()
    store_in_small_batches(site)
    before = watermark(site)
    rows = distribution_rows(site, "SELECT folder, last_xact_seqno FROM msrepl_batches ORDER BY first_xact_seqno")
    gone = tmp_path / "store" / str(rows[place][0])
    gone.rename(tmp_path / "kept")
    error = error_of(Site.deliver, site)
    assert error.message.startswith(f"store: batch {gone.name} cannot be read: ")
    assert watermark(site) == (bytes(rows[place - 1][1]) if place else before)
    shutil.move(tmp_path / "kept", gone)
    site.deliver().raise_error()
    assert_each_change_was_made_once(site)
