"""Real input: Adventure Works' purchasing department, with everything that replication meets there."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest

from conftest import DatabasesFactory
from support import adventure_works, purchasing_work
from support.equality import common_columns, differing_rows
from support.site import Site

_ROUNDS = 4
_ROWS_A_ROUND = 2500

_ARTICLES: list[dict[str, object]] = [
    {"source": "purchasing.vendor", "replica_identity": "default"},
    {"source": "purchasing.ship_method", "ins_cmd": "SQL", "upd_cmd": "SQL", "del_cmd": "SQL"},
    {
        "source": "purchasing.product_vendor",
        "destination": "archive.vendor_products",
        "ins_cmd": "SQL",
        "upd_cmd": "SCALL",
        "del_cmd": "SQL",
    },
    {
        "source": "purchasing.purchase_order_header",
        "columns": [
            *("purchase_order_id", "revision_number", "status", "vendor_id", "ship_method_id", "order_date"),
            *("ship_date", "sub_total", "tax_amt", "freight", "modified_date"),
        ],
    },
    {"source": "purchasing.purchase_order_detail", "ins_cmd": "CALL", "upd_cmd": "SCALL", "del_cmd": "CALL"},
]

# Checked at each commit of the Subscriber: what commits there is whole transactions.
_SUBSCRIBER_CONSTRAINTS = (
    "ALTER TABLE purchasing.vendor ADD UNIQUE (account_number)",
    "ALTER TABLE purchasing.ship_method ADD UNIQUE (name), ADD UNIQUE (rowguid)",
    (
        "ALTER TABLE archive.vendor_products ADD FOREIGN KEY (vendor_id) REFERENCES purchasing.vendor "
        "DEFERRABLE INITIALLY DEFERRED"
    ),
    (
        "ALTER TABLE purchasing.purchase_order_header "
        "ADD FOREIGN KEY (vendor_id) REFERENCES purchasing.vendor DEFERRABLE INITIALLY DEFERRED, "
        "ADD FOREIGN KEY (ship_method_id) REFERENCES purchasing.ship_method DEFERRABLE INITIALLY DEFERRED"
    ),
    (
        "ALTER TABLE purchasing.purchase_order_detail ADD FOREIGN KEY (purchase_order_id) "
        "REFERENCES purchasing.purchase_order_header DEFERRABLE INITIALLY DEFERRED"
    ),
)


@pytest.mark.skipif(not adventure_works.FOLDER.is_dir(), reason=f"{adventure_works.FOLDER} is absent")
def test_a_purchasing_department_is_equal_at_both_ends_after_every_round(
    databases: DatabasesFactory, tmp_path: Path, spark: Any
) -> None:
    site = Site(databases(), tmp_path / "store", _ARTICLES, spark)
    site.at_publisher(adventure_works.SCHEMA)
    site.set_up()
    site.at_subscriber(*_SUBSCRIBER_CONSTRAINTS)
    random = Random(20598)
    with psycopg.connect(**site.databases.publisher.libpq_parameters("test"), autocommit=True) as session:  # type: ignore[arg-type]
        loaded = adventure_works.load(session, random)
        assert site.run().commands == loaded
        _assert_computed_as_in_the_files(site)
        _assert_equal(site)
        for _ in range(_ROUNDS):
            done = purchasing_work.work(session, random, _ROWS_A_ROUND)
            assert done.rolled_back > 0
            assert site.run().transactions > 0
            _assert_equal(site)


def _assert_equal(site: Site) -> None:
    assert differing_rows(site) == {}
    assert [it for it in site.differences() if it != "purchasing.purchase_order_header"] == []
    assert set(_columns_at_both_ends(site, "purchasing.purchase_order_header")) >= {"total_due", "sub_total"}
    assert set(_columns_at_both_ends(site, "purchasing.purchase_order_detail")) >= {"line_total", "stocked_qty"}


def _columns_at_both_ends(site: Site, source: str) -> list[str]:
    article = next(it for it in site.publication.articles if str(it.source) == source)
    return common_columns(article, site.databases.publisher, site.databases.subscriber)


def _assert_computed_as_in_the_files(site: Site) -> None:
    """Check that the Subscriber's own computed columns equal those in the files."""
    headers = site.at_subscriber(
        "SELECT purchase_order_id::text, total_due::text FROM purchasing.purchase_order_header"
    )
    assert set(headers) == adventure_works.HEADERS.computed(keys=1)
    details = site.at_subscriber(
        "SELECT purchase_order_id::text, purchase_order_detail_id::text, line_total::text, "
        "to_char(stocked_qty, 'FM999990.00') FROM purchasing.purchase_order_detail"
    )
    wanted = {(*key, f"{float(stocked):.2f}") for *key, stocked in adventure_works.DETAILS.computed(keys=2)}
    assert set(details) == wanted
