"""A replication slot that may be lost is reported before it is."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tranrepl.publisher.postgres.slot import slot_dangers

_MEGABYTE = 1000 * 1000


@pytest.mark.parametrize(
    ("status", "size", "left", "said"),
    [
        ("reserved", 900, None, None),
        ("extended", 700, 300, None),
        ("extended", 800, 200, "200.0 MB may be written"),
        ("unreserved", 1000, -16, "; 0 B may be written"),
        ("lost", None, None, "wal_status lost"),
    ],
)
def test_a_slot_that_may_be_lost(status: str, size: int | None, left: int | None, said: str | None) -> None:
    found = list(slot_dangers(status, size and size * _MEGABYTE, left and left * _MEGABYTE, None, None))
    assert len(found) == (said is not None)
    assert all(said is not None and said in it.text for it in found)


@pytest.mark.parametrize(
    ("idle", "limit", "is_said"), [(79, 100, False), (80, 100, True), (None, 100, False), (80, None, False)]
)
def test_a_slot_that_nobody_reads(idle: int | None, limit: int | None, is_said: bool) -> None:
    since, most = (None if it is None else timedelta(minutes=it) for it in (idle, limit))
    found = list(slot_dangers("reserved", 0, None, since, most))
    assert [it.text.partition(" minutes")[0].rpartition(" ")[2] for it in found] == (["80"] if is_said else [])
