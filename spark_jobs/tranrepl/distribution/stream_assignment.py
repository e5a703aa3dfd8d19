"""Which stream applies which command of a commit batch.

Source: the Distribution Agent's SubscriptionStreams, which hashes the primary key (`MSrepl_commands.hashkey`); the
dependencies are MySQL's write sets, without their thresholds. A wrong guess costs a rollback and the retry over a
single connection, never a wrong result: two streams that touch one row or one unique value cannot both commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict

from tranrepl.errors import InternalError
from tranrepl.model.arrays import Bools, Ints, Unsigned
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.call_syntax import Image, Values, sent
from tranrepl.model.command_rows import xact_seqno_numbers
from tranrepl.model.commands import Operation
from tranrepl.model.row_images import NULL, cells, contents
from tranrepl.settings.publication import StreamAssignment
from tranrepl.subscriber.constraints import Constraints, Reference, UniqueKey

Articles = Mapping[int, RegisteredArticle]

VERSION = 2
"""The version of everything below that decides about a stream: what one version began another one must not finish."""
_PRIME = np.uint64(1099511628211)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_ROWS = (Operation.INSERT, Operation.UPDATE, Operation.DELETE)


class Method(StrEnum):
    """How the commands of one commit batch were in fact divided."""

    KEY = "key"
    """The primary key decides; keys that an UPDATE turns into one another go together."""
    DEPENDENCIES = "dependencies"
    """Whole transactions, by the keys that they share."""
    UNDIVIDED = "undivided"
    """Division of a commit batch that stream 0 applies alone."""


class Division(BaseModel):
    """How a commit batch was divided; written into the Subscriber's rows, so that a crash in the middle of the commits
    can be mended by dividing the same commands again."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: Method
    version: int = VERSION
    constraints: Constraints = Constraints()

    def streams_of(self, commands: pa.Table, articles: Articles, streams: int) -> Ints:
        """Return the stream of each command (row layout), shape (commands,). Raises InternalError for a division of
        another version."""
        if self.version != VERSION:
            raise InternalError(f"a commit batch was divided by version {self.version} of the stream assignment")
        match self.method:
            case Method.KEY:
                return _by_key(commands, articles, streams)
            case Method.DEPENDENCIES:
                return _by_dependencies(commands, articles, self.constraints, streams)
            case _:
                return np.zeros(len(commands), dtype=np.int64)


UNDIVIDED = Division(method=Method.UNDIVIDED)


def division(commands: pa.Table, assignment: StreamAssignment, constraints: Constraints) -> Division:
    """Decide how to divide the commands of a whole commit batch."""
    if pc.any(pc.equal(commands["operation"], int(Operation.TRUNCATE))).as_py():
        # It deletes what other streams have not committed yet, and would not see it.
        return UNDIVIDED
    if assignment is StreamAssignment.DEPENDENCIES:
        return Division(method=Method.DEPENDENCIES, constraints=constraints)
    return Division(method=Method.KEY)


# By key


def _by_key(commands: pa.Table, articles: Articles, streams: int) -> Ints:
    old = _old_keys(commands, articles)
    rows, new = _new_keys(commands, articles)
    if len(rows) == 0:
        return _of_hashes(_hashes(old), streams)
    encoded = pc.dictionary_encode(pa.chunked_array([old, new])).combine_chunks()
    ids, names = encoded.indices.to_numpy().astype(np.int64), encoded.dictionary
    together = _components(len(names), ids[rows], ids[len(old) :])
    smallest = np.full(len(names), np.iinfo(np.uint64).max, dtype=np.uint64)
    np.minimum.at(smallest, together, _hashes(names))
    return _of_hashes(smallest[together[ids[: len(old)]]], streams)


def _old_keys(commands: pa.Table, articles: Articles) -> pa.StringArray:
    """Return what names each command's row: article and key, as it was before the command where there was one."""
    keys = pa.nulls(len(commands), pa.string())
    for part in _parts(commands, articles):
        image = Image.AFTER if part.operation is Operation.INSERT else Image.BEFORE
        keys = _put(keys, part.rows, part.names(image, part.article.key_positions, f"{part.article.destination}\t"))
    return keys


def _new_keys(commands: pa.Table, articles: Articles) -> tuple[Ints, pa.StringArray]:
    """Return the rows whose UPDATE changes the key, shape (n,), and the n keys that they get."""
    rows, keys = [np.zeros(0, dtype=np.int64)], [pa.array([], pa.string())]
    for part in _parts(commands, articles):
        if part.operation is Operation.UPDATE:
            changed = part.touched(part.article.key_positions)
            names = part.names_after(part.article.key_positions, f"{part.article.destination}\t")
            known = changed & _bools(names.is_valid())
            rows.append(part.rows[known])
            keys.append(names.filter(pa.array(known)))
    return np.concatenate(rows), pa.concat_arrays(keys)


def _of_hashes(hashes: Unsigned, streams: int) -> Ints:
    mixed = (hashes * _MIX) >> np.uint64(33)
    return (mixed % np.uint64(streams)).astype(np.int64)


def _hashes(names: pa.StringArray) -> Unsigned:
    """Hash each name by a polynomial over its bytes: the same in every process and for ever, unlike Python's."""
    filled = pc.fill_null(names, "")
    lengths = pc.binary_length(filled).to_numpy().astype(np.int64)
    if not lengths.any():
        return np.zeros(len(names), dtype=np.uint64)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    within = np.arange(int(lengths.sum())) - np.repeat(starts, lengths)
    with np.errstate(over="ignore"):
        powers = np.cumprod(np.full(int(lengths.max()), _PRIME))
        terms = (contents(filled).astype(np.uint64) + np.uint64(1)) * powers[within]
        # A start behind the end would be an error, and the sum of an empty slice is its first element.
        sums = np.add.reduceat(np.concatenate([terms, [np.uint64(0)]]), starts)
    return np.where(lengths > 0, sums, np.uint64(0))


# By dependencies


def _by_dependencies(commands: pa.Table, articles: Articles, constraints: Constraints, streams: int) -> Ints:
    transactions = _transactions(commands)
    count = int(transactions[-1]) + 1 if len(commands) else 0
    touches = _Touches()
    parts = list(_parts(commands, articles))
    for key in _unique_keys(articles, constraints):
        _touch_key(touches, parts, key, constraints.references)
    rows, nodes = touches.nodes()
    if len(rows) == 0:
        return transactions % streams
    together = _components(count + int(nodes.max()) + 1, transactions[rows], nodes + count)[:count]
    # In order of their first transactions, one after the other: components are many and small, or few and hopeless.
    _, component = np.unique(together, return_inverse=True)
    return component.astype(np.int64)[transactions] % streams


def _transactions(commands: pa.Table) -> Ints:
    """Return each command's transaction, numbered from 0, shape (commands,)."""
    seqnos = xact_seqno_numbers(commands["xact_seqno"].combine_chunks())
    return np.concatenate([[0], np.cumsum(seqnos[1:] != seqnos[:-1])]).astype(np.int64)[: len(commands)]


def _unique_keys(articles: Articles, constraints: Constraints) -> Iterator[UniqueKey]:
    """Yield the articles' primary keys, and what else is unique at the Subscriber."""
    primary = {UniqueKey(article_id=number, positions=it.key_positions) for number, it in articles.items()}
    yield from sorted(primary, key=lambda it: it.article_id)
    yield from (it for it in constraints.unique_keys if it not in primary)


@dataclass(slots=True)
class _Touches:
    """Which rows (of the commit batch) touch which value, by name."""

    rows: list[Ints] = field(default_factory=list)
    names: list[pa.StringArray] = field(default_factory=list)

    def add(self, rows: Ints, names: pa.StringArray) -> None:
        """Add that each row touches the value of its name, shape (rows,) both; a row without a name touches none."""
        known = _bools(names.is_valid())
        self.rows.append(rows[known])
        self.names.append(names.drop_null())

    def nodes(self) -> tuple[Ints, Ints]:
        """Return the rows, and a number for the value that each touches, shape (touches,) both."""
        if not self.rows:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        encoded = pc.dictionary_encode(pa.chunked_array(self.names)).combine_chunks()
        return np.concatenate(self.rows), encoded.indices.to_numpy().astype(np.int64)


def _touch_key(touches: _Touches, parts: Sequence[_Part], key: UniqueKey, foreign_keys: Sequence[Reference]) -> None:
    """Add the rows that take, give up or refer to a value of the key. Where one of them does not say which, all of them
    stay together."""
    name = f"{key.article_id}:{','.join(map(str, key.positions))}\t"
    own = [it for it in parts if it.article.article_id == key.article_id]
    found = [_touch(part, key.positions, name, values_known=key.values_known) for part in own]
    for foreign in foreign_keys:
        if foreign.parent_id == key.article_id and set(foreign.parent_positions) == set(key.positions):
            referring = dict(zip(foreign.parent_positions, foreign.positions, strict=True))
            positions = tuple(referring[at] for at in key.positions)
            children = [it for it in parts if it.article.article_id == foreign.article_id]
            found += [_touch(part, positions, name, values_known=True) for part in children]
    for touch in found:
        for names in touch.names:
            touches.add(touch.rows, names)
    if any(touch.unknown.any() for touch in found):
        for touch in found:
            rows = touch.rows[touch.touched]
            touches.add(rows, pa.array([f"{name}*"] * len(rows), pa.string()))


@dataclass(frozen=True, slots=True)
class _Touch:
    """How one part touches a key: `names` of values for each of `rows`, NULL where there is none or it is unknown."""

    rows: Ints
    touched: Bools
    unknown: Bools
    names: tuple[pa.StringArray, ...]


def _touch(part: _Part, positions: tuple[int, ...], name: str, *, values_known: bool) -> _Touch:
    every = np.ones(len(part.rows), dtype=np.bool_)
    if not values_known:
        return _Touch(part.rows, every, every, ())
    if part.operation is Operation.INSERT:
        return _Touch(part.rows, every, ~every, (part.names(Image.AFTER, positions, name),))
    knows_before = part.travels(Image.BEFORE, positions)
    before = part.names(Image.BEFORE, positions, name) if part.knows_some(Image.BEFORE, positions) else None
    if part.operation is Operation.DELETE:
        return _Touch(part.rows, every, ~knows_before, () if before is None else (before,))
    changed = part.touched(positions)
    after = part.names(Image.AFTER, positions, name)
    unknown = changed & ~(knows_before & part.travels(Image.AFTER, positions))
    # An UPDATE names its row by the key, also where it changes other columns.
    names = (_where(after, changed),) if before is None else (before, _where(after, changed))
    return _Touch(part.rows, changed | bool(before is not None), unknown, names)


def _where(names: pa.StringArray, chosen: Bools) -> pa.StringArray:
    return pc.if_else(pa.array(chosen), names, pa.scalar(None, pa.string()))


# Values of commands


@dataclass(frozen=True, slots=True)
class _Part:
    """The commands of one article and operation: `rows` says which of the commit batch they are."""

    article: RegisteredArticle
    operation: Operation
    rows: Ints
    commands: pa.Table

    def _values(self, image: Image) -> Values:
        what = sent(self.article.propagation(self.operation), self.operation)
        return what.before if image is Image.BEFORE else what.after

    def knows_some(self, image: Image, positions: Sequence[int]) -> bool:
        """Return whether every column's value travels in some command at least."""
        match self._values(image):
            case Values.NONE:
                return False
            case Values.KEY:
                return set(positions) <= set(self.article.key_positions)
            case _:
                return True

    def travels(self, image: Image, positions: Sequence[int]) -> Bools:
        """Return for each command whether the values of these columns travel."""
        if not self.knows_some(image, positions):
            return np.zeros(len(self.rows), dtype=np.bool_)
        if self._values(image) is Values.CHANGED:
            return _all([self._changed(at) for at in positions])
        lob = any(self.article.columns[at].lob and at not in self.article.key_positions for at in positions)
        return np.full(len(self.rows), not (image is Image.BEFORE and lob))

    def touched(self, positions: Sequence[int]) -> Bools:
        """Return for each UPDATE whether one of these columns changes, or may."""
        if sent(self.article.propagation(self.operation), self.operation).mask:
            return ~_all([~self._changed(at) for at in positions])
        if self.knows_some(Image.BEFORE, positions):
            same = pc.equal(self.names(Image.BEFORE, positions, ""), self.names(Image.AFTER, positions, ""))
            return ~_bools(pc.fill_null(same, False))
        return np.ones(len(self.rows), dtype=np.bool_)

    def _changed(self, at: int) -> Bools:
        masks = self.commands["changed"].combine_chunks()
        offsets = np.frombuffer(masks.buffers()[1], dtype=np.int32)[masks.offset : masks.offset + len(masks) + 1]
        data = np.frombuffer(masks.buffers()[2], dtype=np.uint8)
        # An empty mask at the very end has no byte of its own to look at.
        places = np.minimum(offsets[:-1] + at // 8, max(len(data) - 1, 0))
        wide_enough = np.diff(offsets) > at // 8
        return wide_enough & ((data[places] >> np.uint8(at % 8)) & 1).astype(np.bool_)

    def names(self, image: Image, positions: Sequence[int], prefix: str) -> pa.StringArray:
        """Join the values of these columns to one text a row; NULL where one of them is NULL or does not travel."""
        return _joined(self._columns(image, positions), prefix)

    def names_after(self, positions: Sequence[int], prefix: str) -> pa.StringArray:
        """Do so with the values that an UPDATE leaves: where only changed ones travel, the others are as before."""
        after = self._columns(Image.AFTER, positions)
        if sent(self.article.propagation(self.operation), self.operation).mask:
            both = zip(positions, after, self._columns(Image.BEFORE, positions), strict=True)
            after = [pc.if_else(pa.array(self._changed(at)), new, old) for at, new, old in both]
        return _joined(after, prefix)

    def _columns(self, image: Image, positions: Sequence[int]) -> list[pa.StringArray]:
        lists = cells(self.commands[image.value].combine_chunks())
        offsets = lists.offsets.to_numpy().astype(np.int64)
        starts, lengths = offsets[:-1], np.diff(offsets)
        valid = _bools(lists.is_valid())
        columns = []
        for at in positions:
            there = valid & (lengths > at)
            taken = lists.values.take(pa.array(starts + at, mask=~there))
            columns.append(pc.if_else(pc.equal(taken, NULL), pa.scalar(None, pa.string()), taken))
        return columns


def _joined(columns: Sequence[pa.StringArray], prefix: str) -> pa.StringArray:
    return pc.binary_join_element_wise(prefix, pc.binary_join_element_wise(*columns, "\t"), "")


def _all(columns: Sequence[Bools]) -> Bools:
    return np.asarray(np.stack(columns).all(axis=0), dtype=np.bool_)


def _bools(values: pa.BooleanArray) -> Bools:
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.bool_)


def _parts(commands: pa.Table, articles: Articles) -> Iterator[_Part]:
    article_ids, operations = commands["article_id"].to_numpy(), commands["operation"].to_numpy()
    for number in np.unique(article_ids):
        for operation in _ROWS:
            rows = np.flatnonzero((article_ids == number) & (operations == int(operation)))
            if len(rows):
                yield _Part(articles[int(number)], operation, rows, commands.take(pa.array(rows)))


def _put(target: pa.StringArray, rows: Ints, values: pa.StringArray) -> pa.StringArray:
    places = np.full(len(target), -1, dtype=np.int64)
    places[rows] = np.arange(len(rows))
    return pc.coalesce(values.take(pa.array(places, mask=places < 0)), target)


def _components(count: int, left: Ints, right: Ints) -> Ints:
    """Return the smallest node that each node is connected to, shape (count,)."""
    roots = np.arange(count)
    while True:
        first, second = roots[left], roots[right]
        if (first == second).all():
            return roots
        np.minimum.at(roots, np.maximum(first, second), np.minimum(first, second))
        while not (roots[roots] == roots).all():
            roots = roots[roots]
