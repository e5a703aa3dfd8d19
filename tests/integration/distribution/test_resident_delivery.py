"""A delivery that stays up: what is registered meanwhile arrives once and in order, whatever happens beside it."""

from __future__ import annotations

from pathlib import Path

from conftest import DatabasesFactory
from support.observed import assert_each_change_was_made_once, audited_site, distribution_rows, insert_transactions
from support.resident_delivery import delivering
from support.site import Site
from support.spark_here import SparkHere


def _site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    return audited_site(databases(), tmp_path / "store", SparkHere(), step=None)


def test_what_is_registered_while_it_stays_arrives_at_once(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases, tmp_path)
    insert_transactions(site, 3)
    site.read_log().raise_error()
    with delivering(site) as delivery:
        delivery.wait_until_delivered()
        for _ in range(5):
            insert_transactions(site, 1, 2, 3)
            site.read_log().raise_error()
            delivery.wait_until_delivered()
        result = delivery.result()
    assert result.error is None
    assert (result.transactions, result.commands) == (16, 33)
    assert_each_change_was_made_once(site)
    rows = distribution_rows(site, "SELECT runstatus, delivered_transactions, error_id FROM msdistribution_history")
    assert rows == [(2, 16, None)]
    measured = distribution_rows(site, "SELECT sum(transactions), sum(commands) FROM msrepl_deliveries")
    assert measured == [(16, 33)]
