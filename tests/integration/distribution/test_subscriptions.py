"""What a subscription is promised: whole transactions, in order, in commits of the agreed size, or a clear stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from conftest import DatabaseFactory, DatabasesFactory
from support.databases import Databases
from support.equality import differing_rows
from support.observed import (
    AUDIT,
    ITEM,
    ITEM_WITH_ITS_COMMIT,
    audits,
    commits,
    distribution_rows,
    insert_transactions,
    make_transactions,
    slot_position,
    stored_commands,
    watermark,
)
from support.site import Site, execute
from support.spark_here import SparkHere
from tranrepl.distribution import job as distribution_job
from tranrepl.errors import ConfigurationError, ErrorKind
from tranrepl.jobs.requests import ApplyMode, DistributionRequest
from tranrepl.jobs.results import JobResult
from tranrepl.publisher.postgres.lsn import lsn_number

_TRAIL = """
CREATE TABLE trail (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, watermark bytea, txid bigint);
CREATE FUNCTION leave_trail() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO trail (watermark, txid) VALUES (NEW.transaction_timestamp, txid_current());
  RETURN NULL;
END $$;
CREATE TRIGGER trail AFTER UPDATE ON msreplication_subscriptions FOR EACH ROW
WHEN (OLD.transaction_timestamp <> NEW.transaction_timestamp) EXECUTE FUNCTION leave_trail();
"""


@pytest.fixture
def spark() -> SparkHere:
    """The jobs' tasks run in this process: nothing here is Spark's."""
    return SparkHere()


def _item_site(
    databases: Databases, tmp_path: Path, spark: Any, log_reader: Mapping[str, int] | None = None, **limits: int
) -> Site:
    """A set-up publication of `item`, whose Subscriber shows its commits; `limits` are the subscription's."""
    subscription = {"name": "reporting", "connection": "subscriber", **limits}
    site = Site(databases, tmp_path / "store", ["public.item"], spark, [subscription], log_reader=log_reader or {})
    site.at_publisher(ITEM)
    site.at_subscriber(ITEM_WITH_ITS_COMMIT)
    site.set_up()
    return site


# Several subscriptions


def test_two_subscriptions_read_the_stored_batches_and_not_the_log(
    database: DatabaseFactory, databases: DatabasesFactory, tmp_path: Path, spark: Any
) -> None:
    subscriptions = [{"name": "reporting", "connection": "subscriber"}, {"name": "archive", "connection": "archive"}]
    site = Site(databases(), tmp_path / "store", ["public.item"], spark, subscriptions)
    archive = site.connections["archive"] = database("archive")
    site.at_publisher(ITEM)
    site.set_up()
    insert_transactions(site, 3, 1)
    site.run()
    assert (differing_rows(site), differing_rows(site, archive)) == ({}, {})

    # From now on only `reporting` is delivered to, round by round; then `archive` catches up in one run.
    read = 0
    for sizes in ((5, 1), (2,)):
        insert_transactions(site, *sizes)
        read += site.read_log().commands
        assert site.deliver("reporting").commands == sum(sizes)
    assert execute(archive, "SELECT max(xact) FROM item") == [(2,)]
    position = slot_position(site)
    site.connections["publisher"] = replace(site.databases.publisher, login="nobody")
    caught_up = site.deliver("archive")
    assert (caught_up.error, caught_up.transactions, caught_up.commands) == (None, 3, read)
    assert (differing_rows(site), differing_rows(site, archive)) == ({}, {})
    assert slot_position(site) == position
    assert distribution_rows(
        site, "SELECT delivered_transactions, delivered_commands FROM mslogreader_history ORDER BY id"
    ) == [(2, 4), (2, 6), (1, 2)]


# Commits at the Subscriber


def test_a_commit_holds_at_most_commit_batch_size_transactions(
    databases: DatabasesFactory, tmp_path: Path, spark: Any
) -> None:
    site = _item_site(databases(), tmp_path, spark, commit_batch_size=3)
    insert_transactions(site, *[2] * 10)
    result = site.run()
    assert commits(site) == [[1, 2, 3], [4, 5, 6], [7, 8, 9], [10]]
    assert (result.transactions, result.commands, result.batches) == (10, 20, 4)


def test_a_commit_ends_where_a_transaction_reaches_the_threshold(
    databases: DatabasesFactory, tmp_path: Path, spark: Any
) -> None:
    site = _item_site(databases(), tmp_path, spark, commit_batch_threshold=10)
    insert_transactions(site, 4, 4, 4, 10, 9, 1, 9, 30, 1)
    site.run()
    assert commits(site) == [[1, 2, 3], [4], [5, 6], [7, 8], [9]]


def test_the_watermark_moves_with_each_commit(databases: DatabasesFactory, tmp_path: Path, spark: Any) -> None:
    site = _item_site(databases(), tmp_path, spark, commit_batch_size=2)
    site.at_subscriber(_TRAIL)
    insert_transactions(site, 3, 1, 5, 1, 2)
    site.run()
    seqnos = sorted({bytes.fromhex(it.xact_seqno) for it in stored_commands(site)})
    trail = site.at_subscriber("SELECT watermark, txid FROM trail ORDER BY seq")
    assert [bytes(mark) for mark, _ in trail] == [seqnos[1], seqnos[3], seqnos[4]]
    applied = site.at_subscriber("SELECT DISTINCT applied_in FROM item ORDER BY 1")
    assert [(txid,) for _, txid in trail] == applied


def test_a_trigger_of_the_subscribers_own_finds_its_tables_in_every_commit(
    databases: DatabasesFactory, tmp_path: Path, spark: Any
) -> None:
    site = _item_site(databases(), tmp_path, spark, commit_batch_size=1)
    site.at_publisher(AUDIT)
    site.at_subscriber(AUDIT)
    make_transactions(site, 3)
    site.run()
    published, received = audits(site)
    assert published == received


def test_a_transaction_larger_than_every_limit_stays_one_transaction(
    databases: DatabasesFactory, tmp_path: Path, spark: Any
) -> None:
    """Larger than a batch of the log reader, than a commit batch, and than what is staged at once."""
    limits = {"commit_batch_size": 1, "commit_batch_threshold": 1}
    smallest = {"read_batch_size": 1, "read_batch_bytes": 1}
    site = _item_site(databases(), tmp_path, spark, smallest, **limits)
    insert_transactions(site, 1, 180_000, 1)
    result = site.run()
    assert commits(site) == [[1], [2], [3]]
    assert (result.transactions, result.commands) == (3, 180_002)
    assert distribution_rows(site, "SELECT transactions, commands FROM msrepl_batches ORDER BY batch_id") == [
        (1, 1),
        (1, 180_000),
        (1, 1),
    ]
    assert differing_rows(site) == {}


# The bound of a run


def test_a_bound_delivers_exactly_the_transactions_committed_before_it(
    databases: DatabasesFactory, tmp_path: Path, spark: Any
) -> None:
    site = _item_site(databases(), tmp_path, spark, {"read_batch_size": 3})
    insert_transactions(site, 1, 2, 3, 4, 5)
    site.read_log().raise_error()
    times = sorted({it.commit_time for it in stored_commands(site)})
    assert len(times) == 5

    assert _delivered(site.deliver(committed_before=times[0])) == (0, 0)
    # Within a batch; again; at a batch's border; and without bound.
    assert _delivered(site.deliver(committed_before=times[2])) == (2, 3)
    assert _delivered(site.deliver(committed_before=times[2])) == (0, 0)
    assert site.at_subscriber("SELECT DISTINCT xact FROM item ORDER BY 1") == [(1,), (2,)]
    assert _delivered(site.deliver(committed_before=times[3])) == (1, 3)
    assert _delivered(site.deliver()) == (2, 9)
    assert differing_rows(site) == {}


def _delivered(result: JobResult) -> tuple[int, int]:
    result.raise_error()
    return result.transactions, result.commands


# With nothing to send


def test_an_idle_log_is_passed_over_without_spark(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _item_site(databases(), tmp_path, spark=None)
    site.at_publisher(
        "CREATE TABLE unpublished (id int PRIMARY KEY, filler text)",
        "INSERT INTO unpublished SELECT n, repeat('x', 500) FROM generate_series(1, 5000) n",
        "UPDATE unpublished SET filler = filler || 'y'",
    )
    written = lsn_number(site.at_publisher("SELECT pg_current_wal_lsn()::text")[0][0])
    assert slot_position(site) < written
    result = site.read_log()
    assert (result.error, result.transactions, result.batches) == (None, 0, 0)
    assert slot_position(site) >= written
    assert site.deliver().commands == 0


def test_changes_of_unpublished_columns_alone_send_nothing(
    databases: DatabasesFactory, tmp_path: Path, spark: Any
) -> None:
    article = {"source": "public.vendor", "columns": ["vendor_id", "name"]}
    site = Site(databases(), tmp_path / "store", [article], spark)
    site.at_publisher(_VENDOR)
    site.set_up()
    site.at_publisher("INSERT INTO vendor SELECT n, 'Name', n, 'note' FROM generate_series(1, 9) n")
    site.run()
    site.at_publisher("UPDATE vendor SET rating = rating + 1, note = NULL", "UPDATE vendor SET name = name")
    written = lsn_number(site.at_publisher("SELECT pg_current_wal_lsn()::text")[0][0])
    assert _delivered(site.read_log()) == (0, 0)
    assert slot_position(site) >= written
    assert distribution_rows(site, "SELECT count(*) FROM msrepl_batches") == [(1,)]
    assert len(list((tmp_path / "store").iterdir())) == 1

    site.at_publisher("UPDATE vendor SET rating = 0, name = 'Other' WHERE vendor_id = 3")
    assert _delivered(site.run()) == (1, 1)
    assert differing_rows(site) == {}


# Altered tables


_VENDOR = "CREATE TABLE vendor (vendor_id int PRIMARY KEY, name varchar(20), rating int, note text)"


@dataclass(frozen=True, slots=True)
class _Alteration:
    """A table is altered at the Publisher: how, how the Subscriber follows, and what goes on there afterwards."""

    statement: str
    column: str
    afterwards: tuple[str, ...]
    at_subscriber: tuple[str, ...] = ()
    columns: Sequence[str] | None = None
    columns_afterwards: Sequence[str] | None = None
    among_changes: bool = True
    rewrites: bool = False


_ALTERATIONS = {
    "dropped": _Alteration(
        "ALTER TABLE vendor DROP COLUMN note",
        "note",
        ("INSERT INTO vendor VALUES (11, 'after', 1)", "UPDATE vendor SET name = 'changed' WHERE vendor_id IN (1, 10)"),
    ),
    "retyped": _Alteration(
        "ALTER TABLE vendor ALTER COLUMN rating TYPE bigint",
        "rating",
        (
            "INSERT INTO vendor VALUES (11, 'after', 5000000000, NULL)",
            "UPDATE vendor SET rating = 7000000000 WHERE vendor_id IN (1, 10)",
        ),
        ("ALTER TABLE vendor ALTER COLUMN rating TYPE bigint",),
        rewrites=True,
    ),
    "renamed": _Alteration(
        "ALTER TABLE vendor RENAME COLUMN note TO remark",
        "note",
        (
            "INSERT INTO vendor (vendor_id, remark) VALUES (11, 'after')",
            "UPDATE vendor SET remark = 'changed' WHERE vendor_id IN (1, 10)",
        ),
        ("ALTER TABLE vendor RENAME COLUMN note TO remark",),
    ),
    "renamed in a column list, by itself": _Alteration(
        "ALTER TABLE vendor RENAME COLUMN note TO remark",
        "note",
        ("INSERT INTO vendor (vendor_id, remark) VALUES (11, 'after')", "UPDATE vendor SET remark = NULL, rating = 0"),
        ("ALTER TABLE vendor RENAME COLUMN note TO remark",),
        ("vendor_id", "note"),
        ("vendor_id", "remark"),
        among_changes=False,
    ),
    "dropped from a column list, by itself": _Alteration(
        "ALTER TABLE vendor DROP COLUMN note",
        "note",
        ("INSERT INTO vendor (vendor_id, name) VALUES (11, 'after')", "UPDATE vendor SET name = 'changed'"),
        (),
        ("vendor_id", "name", "note"),
        ("vendor_id", "name"),
        among_changes=False,
    ),
}


@pytest.mark.parametrize("alteration", _ALTERATIONS.values(), ids=list(_ALTERATIONS))
def test_an_altered_column_stops_the_publication_without_loss(
    alteration: _Alteration, databases: DatabasesFactory, tmp_path: Path, spark: Any
) -> None:
    ends = databases()
    site = _vendor_site(ends, tmp_path, spark, alteration.columns)
    site.at_publisher(_VENDOR)
    site.set_up()
    site.at_publisher(
        "INSERT INTO vendor SELECT n, 'before', n, 'note' FROM generate_series(1, 5) n",
        "UPDATE vendor SET note = 'other' WHERE vendor_id = 2",
        "DELETE FROM vendor WHERE vendor_id = 3",
        *_altering_transaction(alteration),
        *alteration.afterwards,
        "DELETE FROM vendor WHERE vendor_id = 4",
    )
    stored = 3 if alteration.among_changes else 4
    _assert_stopped(site.read_log(), "public.vendor", alteration.column, stored)
    assert site.deliver().transactions == stored
    survivors = [(1,), (2,), (4,), (5,)] if alteration.among_changes else [(1,), (2,), (4,), (5,), (10,)]
    assert site.at_subscriber("SELECT vendor_id FROM vendor ORDER BY 1") == survivors
    _assert_stopped(site.read_log(), "public.vendor", alteration.column, 0)

    site = _vendor_site(ends, tmp_path, spark, alteration.columns_afterwards)
    site.at_subscriber(*alteration.at_subscriber)
    site.set_up()
    if alteration.rewrites:
        # With what other values, the log does not tell.
        site.read_log().raise_error()
        with pytest.raises(ConfigurationError, match="its table was rewritten"):
            site.deliver()
        site.validate().raise_error()
    site.run()
    assert differing_rows(site) == {}
    assert site.differences() == []
    assert (11,) in site.at_subscriber("SELECT vendor_id FROM vendor")


def _vendor_site(databases: Databases, tmp_path: Path, spark: Any, columns: Sequence[str] | None) -> Site:
    article: dict[str, object] = {"source": "public.vendor"}
    if columns:
        article["columns"] = list(columns)
    return Site(databases, tmp_path / "store", [article], spark)


def _altering_transaction(alteration: _Alteration) -> tuple[str, ...]:
    insert = "INSERT INTO vendor VALUES (10, 'before', 10, 'note')"
    if not alteration.among_changes:
        return insert, alteration.statement
    update = "UPDATE vendor SET rating = {} WHERE vendor_id = 5"
    return (f"BEGIN; {update.format(1)}; {insert}; {alteration.statement}; {update.format(2)}; COMMIT",)


def _assert_stopped(result: JobResult, table: str, column: str, transactions: int) -> None:
    assert result.error is not None
    assert result.error.kind is ErrorKind.CONFIGURATION
    assert table in result.error.message
    assert f"column {column} " in result.error.message
    assert "tranrepl setup" in (result.error.remedy or "")
    assert result.transactions == transactions


def test_an_added_column_is_passed_over(databases: DatabasesFactory, tmp_path: Path, spark: Any) -> None:
    site = _vendor_site(databases(), tmp_path, spark, None)
    site.at_publisher(_VENDOR)
    site.set_up()
    site.at_publisher(
        "INSERT INTO vendor SELECT n, 'before', n, 'note' FROM generate_series(1, 5) n",
        "BEGIN; UPDATE vendor SET rating = 7; ALTER TABLE vendor ADD COLUMN added uuid DEFAULT gen_random_uuid(); "
        "UPDATE vendor SET rating = 8, added = NULL WHERE vendor_id < 3; COMMIT",
        "INSERT INTO vendor VALUES (6, 'after', 6, NULL)",
        "UPDATE vendor SET vendor_id = 7, note = 'moved' WHERE vendor_id = 6",
        "UPDATE vendor SET added = NULL",
    )
    assert _delivered(site.run())[0] == 4
    assert differing_rows(site) == {}
    assert site.at_subscriber("SELECT * FROM vendor WHERE vendor_id = 7") == [(7, "after", 6, "moved")]


_REPLACED = {
    "a table": (("DROP TABLE vendor", _VENDOR), "table public.vendor was dropped"),
    "a column": (("ALTER TABLE vendor DROP COLUMN note, ADD COLUMN note text",), "column note was dropped"),
}


@pytest.mark.parametrize(("statements", "problem"), _REPLACED.values(), ids=list(_REPLACED))
def test_a_table_recreated_under_its_name_stops_the_publication(
    statements: tuple[str, ...], problem: str, databases: DatabasesFactory, tmp_path: Path, spark: Any
) -> None:
    """The log does not tell; without a stop the Subscriber would keep what is gone, and nobody would know."""
    site = _vendor_site(databases(), tmp_path, spark, None)
    site.at_publisher(_VENDOR)
    site.set_up()
    site.at_publisher(
        "INSERT INTO vendor VALUES (1, 'old', 1, 'note')", *statements, "INSERT INTO vendor VALUES (2, 'new', 2, NULL)"
    )
    error = site.read_log().error
    assert error is not None
    assert (error.kind, problem in error.message) == (ErrorKind.CONFIGURATION, True)
    site.deliver().raise_error()
    assert site.at_subscriber("SELECT name, note FROM vendor WHERE vendor_id = 1") == [("old", "note")]
    with pytest.raises(ConfigurationError, match=problem):
        site.read_log()


# History and errors


def test_both_histories_count_what_was_done(databases: DatabasesFactory, tmp_path: Path, spark: Any) -> None:
    site = _item_site(databases(), tmp_path, spark)
    insert_transactions(site, 3, 4)
    site.run()
    site.run()
    counted = "SELECT runstatus, delivered_transactions, delivered_commands, error_id, xact_seqno FROM {} ORDER BY id"
    last = watermark(site)
    for table in ("mslogreader_history", "msdistribution_history"):
        assert distribution_rows(site, counted.format(table)) == [(2, 2, 7, None, last), (4, 0, 0, None, last)]
        assert distribution_rows(site, f"SELECT commands_by_article FROM {table} ORDER BY id LIMIT 1") == [
            ({"public.item": 7},)
        ]


def test_a_row_that_is_gone_stops_the_delivery_at_its_command(
    databases: DatabasesFactory, tmp_path: Path, spark: Any
) -> None:
    site = _item_site(databases(), tmp_path, spark, commit_batch_size=2)
    insert_transactions(site, 1, 1)
    site.run()
    site.at_subscriber("DELETE FROM item WHERE id = 2")
    insert_transactions(site, 3, 3, 3)
    site.at_publisher("BEGIN; DELETE FROM item WHERE id = 1; UPDATE item SET note = 'gone' WHERE id = 2; COMMIT")
    insert_transactions(site, 3)
    site.read_log().raise_error()
    failing = next(it for it in stored_commands(site) if it.operation == "UPDATE")

    first = site.deliver()
    assert first.error is not None
    assert (first.error.kind, first.transactions) == (ErrorKind.DATA, 3)
    result = _deliver_over_one_connection(site)
    assert result.error is not None
    assert (result.error.kind, result.error.number) == (ErrorKind.DATA, "20598")
    assert "public.item" in result.error.message
    assert "id = 2" in result.error.message
    place = (failing.xact_seqno, 2, "public.item")
    assert (result.error.xact_seqno, result.error.command_id, result.error.article) == place
    # Transactions 3 and 4 were committed together; 5, which is in a commit batch with the one that fails, by itself.
    assert site.at_subscriber("SELECT DISTINCT xact FROM item ORDER BY 1") == [(1,), (3,), (4,), (5,)]
    errors = distribution_rows(
        site, "SELECT subscription, error_code, article, xact_seqno, command_id FROM msrepl_errors ORDER BY id"
    )
    assert errors[-1] == ("reporting", "20598", "public.item", bytes.fromhex(failing.xact_seqno), 2)
    assert distribution_rows(site, "SELECT runstatus FROM msdistribution_history ORDER BY id DESC LIMIT 1") == [(6,)]

    site.at_subscriber("INSERT INTO item VALUES (2, 2, 'item')")
    assert site.deliver().transactions == 2
    assert differing_rows(site) == {}


def _deliver_over_one_connection(site: Site) -> JobResult:
    """As the retry over a single connection does."""
    request = DistributionRequest(
        publication=site.publication, subscription="reporting", mode=ApplyMode.SINGLE_CONNECTION
    )
    return distribution_job.run(site.spark, request, site.connections)


def test_a_changed_article_waits_for_its_undelivered_commands(
    databases: DatabasesFactory, tmp_path: Path, spark: Any
) -> None:
    ends = databases()
    site = _vendor_site(ends, tmp_path, spark, None)
    site.at_publisher(_VENDOR)
    site.set_up()
    site.at_publisher("INSERT INTO vendor VALUES (1, 'name', 1, 'note')")
    site.read_log().raise_error()
    narrower = _vendor_site(ends, tmp_path, spark, ["vendor_id", "name"])
    with pytest.raises(ConfigurationError, match=r"public\.vendor changed, but subscription reporting has commands"):
        narrower.set_up()
    with pytest.raises(ConfigurationError, match=r"public\.vendor is not registered as its file describes it"):
        narrower.read_log()
    site.run()
    narrower.set_up()
    narrower.at_publisher("UPDATE vendor SET name = 'new', note = 'not sent'")
    narrower.run()
    assert narrower.at_subscriber("SELECT * FROM vendor") == [(1, "new", 1, "note")]
