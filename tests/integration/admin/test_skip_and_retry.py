"""The administrator's way past one transaction, and back to one."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.in_process import deliver_stored, read_log_into_store
from support.observed import ITEM, distribution_rows, insert_transactions, stored_commands, watermark
from support.site import Site
from support.spark_here import SparkHere
from support.whole_run import good_run
from tranrepl.admin.skip_and_retry import parse_xact_seqno, retry_from_transaction, skip_transaction
from tranrepl.errors import ConfigurationError
from tranrepl.jobs.requests import SnapshotRequest
from tranrepl.snapshot.reinitialization import mark_for_reinitialization


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    """Store three transactions of one item each; the second one's item is at the Subscriber already."""
    subscription = {"name": "reporting", "connection": "subscriber", "commit_batch_size": 1}
    site = Site(databases(), tmp_path / "store", ["public.item"], None, [subscription])
    site.at_publisher(ITEM)
    site.set_up()
    site.at_subscriber("INSERT INTO item VALUES (2, 0, 'mine')")
    insert_transactions(site, 1, 1, 1)
    read_log_into_store(site).raise_error()
    return site


def _seqnos(site: Site) -> list[bytes]:
    return [bytes.fromhex(it.xact_seqno) for it in stored_commands(site)]


def test_the_transaction_that_fails_is_skipped_and_no_other(site: Site) -> None:
    first, second, third = _seqnos(site)
    failed = deliver_stored(site)
    assert failed.error is not None
    assert (failed.error.xact_seqno, failed.error.key, failed.commands) == (second.hex(), "id = 2", 1)

    for other in (first, third):
        with pytest.raises(ConfigurationError, match=f"next transaction is 0x{second.hex()}"):
            skip_transaction(site.topology, "reporting", other)
    assert watermark(site) == first
    skip_transaction(site.topology, "reporting", second)
    assert watermark(site) == second
    assert deliver_stored(site).commands == 1
    assert site.at_subscriber("SELECT id, note FROM item ORDER BY id") == [(1, "item"), (2, "mine"), (3, "item")]
    with pytest.raises(ConfigurationError, match="no transaction left to deliver"):
        skip_transaction(site.topology, "reporting", third)
    assert distribution_rows(site, "SELECT comments, xact_seqno FROM msdistribution_history") == [
        (f"transaction 0x{second.hex()} was skipped by an administrator", second)
    ]


def test_delivery_goes_back_to_a_transaction_that_is_stored(site: Site) -> None:
    _, second, third = _seqnos(site)
    site.at_subscriber("DELETE FROM item")
    deliver_stored(site).raise_error()
    site.at_subscriber("DELETE FROM item WHERE id > 1")
    retry_from_transaction(site.topology, "reporting", second)
    assert deliver_stored(site).commands == 2
    assert (site.differences(), watermark(site)) == ([], third)

    nowhere = (int.from_bytes(second, "big") + 1).to_bytes(8, "big")
    with pytest.raises(ConfigurationError, match="is not stored"):
        retry_from_transaction(site.topology, "reporting", nowhere)
    later = (int.from_bytes(third, "big") + 1).to_bytes(8, "big")
    with pytest.raises(ConfigurationError, match="is not delivered yet"):
        retry_from_transaction(site.topology, "reporting", later)
    assert watermark(site) == third


def test_delivery_does_not_go_back_over_schema_changes(databases: DatabasesFactory, tmp_path: Path) -> None:
    article = {"source": "public.item", "pre_creation_cmd": "truncate"}
    subscription = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}
    site = Site(databases(), tmp_path / "store", [article], SparkHere(), [subscription], replicate_ddl=True)
    site.at_publisher(ITEM)
    site.set_up()
    good_run(site)
    insert_transactions(site, 1)
    site.at_publisher("ALTER TABLE item DROP COLUMN note, ADD COLUMN town text DEFAULT 'here'")
    site.at_publisher("INSERT INTO item VALUES (2, 2, 'there')", "INSERT INTO item VALUES (3, 3, 'x')")
    good_run(site)
    first, change, second, third = dict.fromkeys(_seqnos(site))
    for earlier in (first, change):
        with pytest.raises(ConfigurationError, match="cannot go back over schema changes") as refused:
            retry_from_transaction(site.topology, "reporting", earlier)
        assert f"ALTER TABLE of article public.item in transaction 0x{change.hex()}" in refused.value.message
        assert "`tranrepl reinitialize FILE -s reporting`" in (refused.value.report.remedy or "")
        assert watermark(site) == third
    rows = "SELECT * FROM item ORDER BY id"
    site.at_subscriber("DELETE FROM item WHERE id > 1")
    retry_from_transaction(site.topology, "reporting", second)
    good_run(site)
    assert site.at_subscriber(rows) == site.at_publisher(rows)
    site.at_subscriber("DELETE FROM item")
    mark_for_reinitialization(SnapshotRequest(publication=site.publication, subscription="reporting"), site.topology)
    good_run(site)
    assert site.at_subscriber(rows) == site.at_publisher(rows)


@pytest.mark.parametrize("text", ["", "0x12", "0x00000000000000zz", "not a number"])
def test_what_is_no_xact_seqno_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is no xact_seqno"):
        parse_xact_seqno(text)


def test_a_schema_change_is_not_skipped_and_goes_on_once_made_by_hand(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = Site(databases(), tmp_path / "store", ["public.item"], SparkHere(), replicate_ddl=True)
    site.at_publisher(ITEM)
    site.set_up()
    site.at_subscriber("CREATE VIEW shown AS SELECT note FROM item")
    site.at_publisher("ALTER TABLE item DROP COLUMN note", "INSERT INTO item VALUES (1, 1)")
    site.read_log().raise_error()
    failed = site.deliver().error
    assert failed is not None
    (change, _) = _seqnos(site)
    with pytest.raises(ConfigurationError, match="which cannot be skipped") as refused:
        skip_transaction(site.topology, "reporting", change)
    assert f"`tranrepl browse FILE --from 0x{change.hex()}" in (refused.value.report.remedy or "")
    assert watermark(site) < change
    site.at_subscriber("ALTER TABLE item DROP COLUMN note CASCADE")
    site.deliver().raise_error()
    assert site.at_subscriber("SELECT * FROM item") == site.at_publisher("SELECT * FROM item")
