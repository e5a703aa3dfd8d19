"""Small batches that clean-up puts together, under the jobs that read them and where it is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.child_job import CLEANUP, STORED_DISTRIBUTION, ChildJob
from support.equality import differing_rows
from support.failing_jobs import error_of
from support.object_server import Bucket
from support.observed import (
    assert_each_change_is_stored_once,
    assert_each_change_was_made_once,
    audited_site,
    distribution_rows,
    insert_transactions,
    make_transactions,
    stored_commands,
)
from support.site import Site
from support.spark_here import SparkHere
from support.stored_batches import clean_up_at_once, store_in_small_batches, stored_folders
from tranrepl.admin.cleanup import clean_up
from tranrepl.failpoint import Failpoint


@pytest.fixture
def site(databases: DatabasesFactory, store: Path | Bucket) -> Site:
    """Return one with forty transactions, each of them a batch."""
    site = audited_site(databases(), store, SparkHere(), step=None)
    make_transactions(site, 40)
    site.read_log().raise_error()
    store_in_small_batches(site)
    return site


def _counts(site: Site) -> tuple[int, int]:
    """Return how many batches are registered, and how many transactions they have."""
    ((batches, transactions),) = distribution_rows(site, "SELECT count(*), sum(transactions) FROM msrepl_batches")
    return int(batches), int(transactions)


def test_small_batches_are_put_together_and_hold_what_they_held(site: Site) -> None:
    ends = "SELECT min(first_xact_seqno), max(last_xact_seqno), sum(commands), max(entry_time) FROM msrepl_batches"
    before, stored = distribution_rows(site, ends), stored_commands(site)
    noted = "json_build_array((SELECT article_id FROM msarticles), 1000001)"
    ((ids,), *_) = distribution_rows(site, f"UPDATE msrepl_batches SET article_ids = {noted} RETURNING article_ids")
    with site.topology.distributor() as database:
        one, other, *_ = database.batches.after(database.publications.get("purchasing"), b"")
    assert one.article_ids is not None
    assert other.article_ids is not None
    assert one.article_ids[-1] is other.article_ids[-1], "thousands of batches hold each number once"
    assert clean_up(site.topology).merged_batches == 40
    assert distribution_rows(site, "SELECT article_ids FROM msrepl_batches") == [(ids,)]
    assert (_counts(site), distribution_rows(site, ends)) == ((1, 40), before)
    assert stored_commands(site) == stored
    assert clean_up(site.topology).merged_batches == 0
    # What a delivery may still read is kept as long as what a killed job left.
    assert clean_up(site.topology).orphan_folders == 0
    assert len(stored_folders(site)) == 41
    assert clean_up_at_once(site).orphan_folders == 40
    assert site.deliver().transactions == 40
    assert_each_change_was_made_once(site)
    assert clean_up(site.topology).batches == 1
    assert stored_folders(site) == set()


def test_a_run_that_ends_within_batches_put_together_ends_there(site: Site) -> None:
    times = distribution_rows(site, "SELECT last_commit_time FROM msrepl_batches ORDER BY first_xact_seqno")
    ((bound,), earlier) = times[15], [time for (time,) in times[:15]]
    assert clean_up(site.topology).merged_batches == 40
    assert site.deliver(committed_before=bound).transactions == sum(time < bound for time in earlier) > 10
    site.deliver().raise_error()
    assert_each_change_was_made_once(site)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("failpoint", [Failpoint.STORED, Failpoint.MERGED])
def test_a_merge_killed_before_it_is_registered_has_done_nothing(failpoint: Failpoint, site: Site) -> None:
    assert ChildJob(CLEANUP, site, failpoint).killed()
    assert _counts(site) == (40, 40)
    assert_each_change_is_stored_once(site)
    assert clean_up(site.topology).merged_batches == 40
    assert clean_up_at_once(site).orphan_folders == 41
    site.deliver().raise_error()
    assert_each_change_was_made_once(site)


def test_a_merge_killed_once_it_is_registered_is_whole(site: Site) -> None:
    assert ChildJob(CLEANUP, site, Failpoint.MERGE_REGISTERED).killed()
    assert _counts(site) == (1, 40)
    assert_each_change_is_stored_once(site)
    assert clean_up_at_once(site).orphan_folders == 40
    site.deliver().raise_error()
    assert_each_change_was_made_once(site)


def test_of_two_merges_at_once_one_is_registered(site: Site) -> None:
    with ChildJob(CLEANUP, site, f"{Failpoint.MERGED}/stop") as other:
        other.wait_until_it_stands_still()
        assert clean_up(site.topology).merged_batches == 40
        other.go_on()
        other.result().raise_error()
    assert _counts(site) == (1, 40)
    assert len(stored_folders(site)) == 41
    site.deliver().raise_error()
    assert_each_change_was_made_once(site)


def test_a_delivery_goes_on_where_folders_were_put_together_and_removed(
    databases: DatabasesFactory, store: Path | Bucket
) -> None:
    site = audited_site(databases(), store, SparkHere(), step=None, commit_batch_size=1)
    # More than are read together.
    insert_transactions(site, *[1_000] * 25)
    site.read_log().raise_error()
    store_in_small_batches(site)
    with ChildJob(STORED_DISTRIBUTION, site, f"{Failpoint.BEFORE_COMMIT}/stop") as delivery:
        delivery.wait_until_it_stands_still()
        assert clean_up(site.topology).merged_batches == 25
        assert clean_up_at_once(site).orphan_folders == 25
        insert_transactions(site, 1)
        site.read_log().raise_error()
        delivery.go_on()
        result = delivery.result()
    assert (result.error, result.transactions) == (None, 25), "up to where the run began"
    site.deliver().raise_error()
    assert differing_rows(site) == {}


def test_a_damaged_batch_is_left_as_it_is_and_is_named_as_ever(site: Site) -> None:
    rows = distribution_rows(site, "SELECT folder FROM msrepl_batches ORDER BY first_xact_seqno")
    damaged, store = str(rows[20][0]), site.topology.store()
    kept = store.read(damaged)
    store.remove([damaged])
    assert clean_up(site.topology).merged_batches == 0
    assert (_counts(site), len(stored_folders(site))) == ((40, 40), 39)
    assert damaged in error_of(Site.deliver, site).message
    file = store.new_file(damaged)
    file.write(kept)
    file.close()
    site.deliver().raise_error()
    assert_each_change_was_made_once(site)
