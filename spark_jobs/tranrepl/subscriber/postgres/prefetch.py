"""Rows that the next commands change, read into the Subscriber's buffers while the commands before them are applied.

Commands that are applied serially wait for each page that no buffer holds, one page at a time. A session of its own
reads them ahead, as a standby's recovery does.

Source: PostgreSQL documentation, `recovery_prefetch`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import Enum, auto

import numpy as np
import numpy.typing as npt
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from tranrepl.errors import ReplicationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import Operation
from tranrepl.model.row_images import cells
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.composed_sql import type_sql
from tranrepl.postgres.session import Session
from tranrepl.subscriber.batching.key_order import Columns, dense_range, key_order
from tranrepl.subscriber.postgres.destination import Targets
from tranrepl.subscriber.postgres.procedures import Target, equality
from tranrepl.subscriber.subscription import SubscriptionKey

_FEWEST_ROWS = 100
"""The fewest rows of an article that are worth a statement."""
_MOST_ROWS = 10_000
"""More would not stay in the buffers until their turn."""
_SETTINGS = (
    # A bitmap of the rows leaves no page out, and PostgreSQL asks for many of them at once.
    "SET enable_seqscan = off; SET enable_indexscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; "
    "SET max_parallel_workers_per_gather = 0; SET jit = off; "
    # The delivery may wait for what this waits for, where it holds a lock on the table.
    "SET lock_timeout = '10ms'; SET statement_timeout = '10s'"
)
_IS_LARGE = (
    "SELECT greatest(pg_relation_size(%(table)s::regclass), "
    "(SELECT sum(pg_relation_size(relid)) FROM pg_partition_tree(%(table)s::regclass))) "
    "> pg_size_bytes(current_setting('shared_buffers')) / 4"
)
"""A smaller table's pages stay where they are once they were used."""


class _State(Enum):
    NOT_ASKED = auto()
    ASKED = auto()
    ENDED = auto()


@dataclass(slots=True)
class Prefetch:
    """For the thread that plans. It changes nothing but the time that a delivery takes: where it fails, it ends.

    It rests from when a schema change is planned until that is applied: until then the tables are others, and locked.
    """

    connect: Callable[[], Session]
    key: SubscriptionKey
    articles: Mapping[int, RegisteredArticle]
    _opened: ExitStack = field(default_factory=ExitStack)
    _reader: _Reader | None = None
    _state: _State = _State.NOT_ASKED
    _planned_changes: int = 0
    _applied_changes: int = 0

    def change_planned(self) -> None:
        """Note that what is planned from here on comes behind a schema change."""
        self._planned_changes += 1

    def change_applied(self) -> None:
        """Note that a planned schema change is committed. For the thread that applies."""
        self._applied_changes += 1

    def read(self, commands: pa.Table) -> None:
        """Read the rows that these commands (row layout) will update or delete."""
        if self._state is _State.NOT_ASKED:
            # Nothing is applied yet: these are wanted at once.
            self._state = _State.ASKED
            return
        if self._state is _State.ENDED or self._planned_changes != self._applied_changes:
            return
        try:
            for article_id in _often_changed(commands):
                self._open().read(article_id, commands)
        except (psycopg.Error, ReplicationError):
            self.close()

    def close(self) -> None:
        """Close the prefetch: no more is read."""
        self._state = _State.ENDED
        self._opened.close()

    def _open(self) -> _Reader:
        if self._reader is None:
            session = self._opened.enter_context(self.connect())
            session.execute(_SETTINGS)
            self._reader = _Reader(session, Targets(session, f"Subscriber {self.key.subscription}", self.articles))
        return self._reader


@dataclass(slots=True)
class _Reader:
    session: Session
    targets: Targets
    _large: dict[int, bool] = field(default_factory=dict)

    def read(self, article_id: int, commands: pa.Table) -> None:
        target = self.targets[article_id]
        if article_id not in self._large:
            self._large[article_id] = self._is_large(target)
        if not self._large[article_id]:
            return
        keys = _keys(_changing(commands, article_id), target.article.key_positions)
        if dense_range(keys) is None:
            self.session.execute(_read_rows(target), [_array(column) for column in keys], prepare=False)

    def _is_large(self, target: Target) -> bool:
        name = qualified(target.article.destination).as_string(self.session)
        row = self.session.execute(_IS_LARGE, {"table": name}).fetchone()
        return bool(row and row[0])


def _often_changed(commands: pa.Table) -> list[int]:
    """Return the articles with enough updates and deletes."""
    present, counts = np.unique(commands["article_id"].to_numpy()[_changes(commands)], return_counts=True)
    often: list[int] = present[counts >= _FEWEST_ROWS].tolist()
    return often


def _changing(commands: pa.Table, article_id: int) -> pa.Table:
    """Return the first of an article's updates and deletes."""
    own = _changes(commands) & (commands["article_id"].to_numpy() == article_id)
    return commands.take(np.flatnonzero(own)[:_MOST_ROWS])


def _changes(commands: pa.Table) -> npt.NDArray[np.bool_]:
    return np.asarray(np.isin(commands["operation"].to_numpy(), [Operation.UPDATE, Operation.DELETE]), dtype=np.bool_)


def _keys(commands: pa.Table, positions: Sequence[int]) -> Columns:
    """Return each row's key once, in their order. Values that an array's text would have to escape are left out."""
    images = cells(commands["before"].combine_chunks().drop_null())
    names = [str(position) for position in positions]
    rows = pa.table([pc.list_element(images, position) for position in positions], names=names)
    for name in names:
        rows = rows.filter(pc.invert(pc.match_substring_regex(rows[name], r'[\\"]')))
    distinct = rows.group_by(names, use_threads=False).aggregate([])
    keys = tuple(distinct[name].combine_chunks() for name in names)
    order = pa.array(key_order(keys))
    return tuple(column.take(order) for column in keys)


def _array(values: pa.StringArray) -> str:
    """Write an array as text. Source: PostgreSQL documentation, "Array Input and Output Syntax"."""
    quoted = pc.binary_join_element_wise('"', values, '"', "")
    joined = pc.binary_join(pa.ListArray.from_arrays([0, len(quoted)], quoted), ",")
    return f"{{{joined[0].as_py()}}}"


def _read_rows(target: Target) -> sql.Composed:
    """Return a statement with an array for each column of the key, which reads the rows ahead."""
    columns = [target.columns[position] for position in target.article.key_positions]
    arrays = [sql.SQL("%s::{}[]").format(type_sql(column.base_type_name)) for column in columns]
    places = [sql.SQL("destination.{}").format(sql.Identifier(column.name)) for column in columns]
    if len(columns) == 1:
        return sql.SQL("SELECT count(*) FROM {} AS destination WHERE {} {} ANY ({})").format(
            qualified(target.article.destination), places[0], equality(columns[0]), arrays[0]
        )
    names = [sql.SQL("keys.{}").format(sql.Identifier(f"k{at}")) for at in range(len(columns))]
    matches = [
        sql.SQL("{} {} {}").format(place, equality(column), name)
        for place, column, name in zip(places, columns, names, strict=True)
    ]
    return sql.SQL("SELECT count(*) FROM unnest({}) AS keys ({}) JOIN {} AS destination ON {}").format(
        sql.SQL(", ").join(arrays),
        sql.SQL(", ").join(sql.Identifier(f"k{at}") for at in range(len(columns))),
        qualified(target.article.destination),
        sql.SQL(" AND ").join(matches),
    )
