"""Subscription streams on Spark: a barrier stage, the clamp to its cores, the retry over a single connection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conftest import DatabasesFactory
from support.observed import (
    assert_each_change_was_made_once_in_any_order,
    audited_site,
    distribution_rows,
    make_transactions,
    watermark,
)
from support.site import Site
from tranrepl.errors import ErrorKind
from tranrepl.jobs.requests import ApplyMode
from tranrepl.model.commands import FIRST_XACT_SEQNO
from tranrepl.settings.publication import StreamAssignment


@pytest.mark.parametrize("assignment", list(StreamAssignment))
def test_streams_are_as_many_as_spark_has_cores(
    assignment: StreamAssignment, databases: DatabasesFactory, tmp_path: Path, spark: Any
) -> None:
    site = audited_site(databases(), tmp_path / "store", spark, subscription_streams=64, stream_assignment=assignment)
    make_transactions(site, 200)
    result = site.run()
    assert (result.error, result.transactions, result.batches) == (None, 200, 10)
    assert result.notices == ("subscription reporting: subscription_streams is 64, but Spark has 2 cores: 2 are used",)
    moved = "SELECT stream FROM msreplication_subscriptions WHERE transaction_timestamp > '\\x0000000000000000'"
    assert site.at_subscriber(f"{moved} ORDER BY 1") == [(0,), (1,)]
    assert_each_change_was_made_once_in_any_order(site)

    make_transactions_again = "UPDATE item SET xact = xact + 1", "DELETE FROM item WHERE id % 5 = 0"
    site.at_publisher(*make_transactions_again)
    site.run()
    assert_each_change_was_made_once_in_any_order(site)


def test_a_batch_that_fails_over_streams_is_delivered_over_one_connection(
    databases: DatabasesFactory, tmp_path: Path, spark: Any
) -> None:
    # Parents and children are in different streams, under the Subscriber's foreign key.
    site = _parents_and_children(databases, tmp_path, spark, StreamAssignment.KEY)
    failed = site.deliver()
    assert failed.error is not None
    assert (failed.error.kind, failed.error.shown_number, failed.commands) == (ErrorKind.DATA, "547 (23503)", 0)
    assert failed.error.article == "public.child"
    assert watermark(site) == FIRST_XACT_SEQNO
    assert site.at_subscriber("SELECT count(*) FROM parent") == [(0,)]
    retried = site.deliver(mode=ApplyMode.SINGLE_CONNECTION)
    assert (retried.error, retried.commands) == (None, 80)
    assert site.differences() == []
    errors = distribution_rows(site, "SELECT error_code, article, command, skipped FROM msrepl_errors")
    assert [(code, article, skipped) for code, article, _, skipped in errors] == [
        ("547 (23503)", "public.child", False)
    ]
    assert errors[0][2].startswith("{CALL [sp_MSins_publicchild] (")


def test_referring_rows_are_deleted_over_a_single_connection(
    databases: DatabasesFactory, tmp_path: Path, spark: Any
) -> None:
    # One statement at the Publisher deletes them: streams cannot, nor can one connection in the log's order.
    subscription = {"name": "reporting", "connection": "subscriber", "subscription_streams": 2, "lock_timeout": 1}
    site = Site(databases(), tmp_path / "store", ["public.part"], spark, [subscription])
    site.at_publisher("CREATE TABLE part (id int PRIMARY KEY, within int REFERENCES part)")
    site.set_up()
    site.at_publisher("INSERT INTO part SELECT n, nullif(n - 1, 0) FROM generate_series(1, 50) n")
    site.run()
    site.at_subscriber("ALTER TABLE part ADD FOREIGN KEY (within) REFERENCES part (id)")
    site.at_publisher("DELETE FROM part WHERE id > 10")
    site.read_log().raise_error()
    failed = site.deliver()
    assert failed.error is not None
    assert (failed.commands, site.at_subscriber("SELECT count(*) FROM part")) == (0, [(50,)])
    retried = site.deliver(mode=ApplyMode.SINGLE_CONNECTION)
    assert (retried.error, retried.commands, retried.in_bulk) == (None, 40, 40)
    assert site.differences() == []


def test_dependencies_need_no_retry(databases: DatabasesFactory, tmp_path: Path, spark: Any) -> None:
    site = _parents_and_children(databases, tmp_path, spark, StreamAssignment.DEPENDENCIES)
    result = site.deliver()
    assert (result.error, result.commands) == (None, 80)
    assert site.differences() == []


def _parents_and_children(
    databases: DatabasesFactory, tmp_path: Path, spark: Any, assignment: StreamAssignment
) -> Site:
    subscription = {
        "name": "reporting",
        "connection": "subscriber",
        "subscription_streams": 2,
        "stream_assignment": assignment,
        "lock_timeout": 1,
    }
    site = Site(databases(), tmp_path / "store", ["public.parent", "public.child"], spark, [subscription])
    site.at_publisher(
        "CREATE TABLE parent (id int PRIMARY KEY)", "CREATE TABLE child (id int PRIMARY KEY, parent int NOT NULL)"
    )
    site.set_up()
    site.at_subscriber("ALTER TABLE child ADD FOREIGN KEY (parent) REFERENCES parent (id)")
    site.at_publisher(
        "DO $$ BEGIN FOR n IN 1..40 LOOP INSERT INTO parent VALUES (n); INSERT INTO child VALUES (n, n); COMMIT; "
        "END LOOP; END $$"
    )
    site.read_log().raise_error()
    return site
