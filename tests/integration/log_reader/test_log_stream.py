"""The stream of a log that is followed: how much is taken in at a time."""

from __future__ import annotations

import select
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from conftest import DatabasesFactory
from support.observed import ITEM
from support.site import Site
from support.spark_here import SparkHere
from tranrepl.log_reader.opening import open_log_reader
from tranrepl.publisher.log_stream import OpenLogStream

_TRANSACTIONS = 5_000
_HELD_BY_A_SOCKET = 92
"""Transactions of three messages each."""
_INSERTS = f"""DO $$ BEGIN FOR n IN 1..{_TRANSACTIONS} LOOP
  INSERT INTO item VALUES (n, n, 'item ' || n); COMMIT; END LOOP; END $$"""


def test_what_the_server_held_back_is_taken_in_together(databases: DatabasesFactory, tmp_path: Path) -> None:
    """A look that took what a server's socket holds, and no more, would let a log reader that is behind stay behind."""
    site = Site(databases(), tmp_path / "store", ["public.item"], SparkHere())
    site.at_publisher(ITEM)
    site.set_up()
    site.at_publisher(_INSERTS)
    with _opened(site) as stream:
        looks = list(_looks(stream))
    assert sum(looks) == _TRANSACTIONS
    assert max(looks) > 3 * _HELD_BY_A_SOCKET


@contextmanager
def _opened(site: Site) -> Iterator[OpenLogStream]:
    with open_log_reader(site.topology) as opened:
        record = opened.record
        articles = opened.database.articles.active(site.publication, record)
        log = opened.publisher.log_stream(articles, opened.start, None)
        assert log is not None
        with log.open() as stream:
            yield stream


def _looks(stream: OpenLogStream) -> Iterator[int]:
    """Yield how many transactions each look took in, until all have arrived."""
    seen = 0
    while seen < _TRANSACTIONS:
        assert select.select([stream.fileno()], [], [], 60.0)[0], "nothing arrives any more"
        stream.receive()
        if stream.arrived_at is not None:
            part = stream.take()
            assert part is not None
            yield part.transactions
            seen += part.transactions
