"""A delivery's commits at the Subscriber: of whole transactions, of the agreed size, each with its watermark."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.equality import differing_rows
from support.observed import (
    AUDIT,
    audits,
    commit_site,
    commits,
    distribution_rows,
    insert_transactions,
    make_transactions,
    stored_commands,
)
from tranrepl.subscriber.batching import commit_batches

_TRAIL = """
CREATE TABLE trail (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, watermark bytea, txid bigint);
CREATE FUNCTION leave_trail() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO public.trail (watermark, txid) VALUES (NEW.transaction_timestamp, txid_current());
  RETURN NULL;
END $$;
CREATE TRIGGER trail AFTER UPDATE ON msreplication_subscriptions FOR EACH ROW
WHEN (OLD.transaction_timestamp <> NEW.transaction_timestamp) EXECUTE FUNCTION leave_trail();
"""


def test_a_commit_holds_at_most_commit_batch_size_transactions(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = commit_site(databases(), tmp_path, commit_batch_size=3)
    insert_transactions(site, *[2] * 10)
    result = site.run()
    assert commits(site) == [[1, 2, 3], [4, 5, 6], [7, 8, 9], [10]]
    assert (result.transactions, result.commands, result.batches) == (10, 20, 4)


def test_a_commit_ends_where_a_transaction_reaches_the_threshold(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = commit_site(databases(), tmp_path, commit_batch_threshold=10)
    insert_transactions(site, 4, 4, 4, 10, 9, 1, 9, 30, 1)
    site.run()
    assert commits(site) == [[1, 2, 3], [4], [5, 6], [7, 8], [9]]


def test_the_watermark_moves_with_each_commit(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = commit_site(databases(), tmp_path, commit_batch_size=2)
    site.at_subscriber(_TRAIL)
    insert_transactions(site, 3, 1, 5, 1, 2)
    site.run()
    seqnos = sorted({bytes.fromhex(it.xact_seqno) for it in stored_commands(site)})
    trail = site.at_subscriber("SELECT watermark, txid FROM trail ORDER BY seq")
    assert [bytes(mark) for mark, _ in trail] == [seqnos[1], seqnos[3], seqnos[4]]
    applied = site.at_subscriber("SELECT DISTINCT applied_in FROM item ORDER BY 1")
    assert [(txid,) for _, txid in trail] == applied


def test_a_trigger_of_the_subscribers_own_finds_its_tables_in_every_commit(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = commit_site(databases(), tmp_path, commit_batch_size=1)
    site.at_publisher(AUDIT)
    site.at_subscriber(AUDIT)
    make_transactions(site, 3)
    site.run()
    published, received = audits(site)
    assert published == received


def test_a_transaction_larger_than_every_limit_stays_one_transaction(
    databases: DatabasesFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Larger than a batch of the log reader, than a commit batch, than what is read and than what is staged at once.
    monkeypatch.setattr(commit_batches, "PIECE_COMMANDS", 25_000)
    limits = {"commit_batch_size": 1, "commit_batch_threshold": 1}
    smallest = {"read_batch_size": 1, "read_batch_bytes": 1}
    site = commit_site(databases(), tmp_path, smallest, **limits)
    insert_transactions(site, 1, 30_000, 1)
    result = site.run()
    assert commits(site) == [[1], [2], [3]]
    assert (result.transactions, result.commands) == (3, 30_002)
    assert distribution_rows(site, "SELECT transactions, commands FROM msrepl_batches ORDER BY batch_id") == [
        (1, 1),
        (1, 30_000),
        (1, 1),
    ]
    assert differing_rows(site) == {}
