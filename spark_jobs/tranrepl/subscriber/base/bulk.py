"""What applies folded commands in bulk, where a database that SQLAlchemy reaches has a way for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import pyarrow as pa

from tranrepl.subscriber.batching.steps import Operations
from tranrepl.subscriber.bulk_attempts import Bulk

BulkInsert = Callable[[pa.StringArray], None]
"""Inserts images of whole rows, inside the open transaction. Raises MismatchError where they are not all there then as
they should be, and what the database says as SQLAlchemy does."""


class SqlBulk(Bulk, Protocol):
    """Bulk apply in one session. Errors of the database are raised as SQLAlchemy does."""

    operations: Mapping[int, Operations]
    """Which operations of which articles (by article_id) may go in bulk."""
