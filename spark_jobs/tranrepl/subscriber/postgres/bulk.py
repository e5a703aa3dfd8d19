"""Folded commands applied in bulk at a PostgreSQL Subscriber, each statement's rows counted.

Rows that must be there are those that an UPDATE or DELETE meets, by a unique key; rows that must not be there are
refused by that key, or looked for. What differs is a MismatchError, and nothing of the step may stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, LiteralString

from psycopg import sql

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import Operation
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.composed_sql import type_sql
from tranrepl.postgres.session import Session
from tranrepl.subscriber.batching.fold_text import KeyAction, KeyText, RowText, fold_text
from tranrepl.subscriber.batching.folded import Folded
from tranrepl.subscriber.batching.key_order import KeyRange
from tranrepl.subscriber.batching.steps import BulkStep, MismatchError
from tranrepl.subscriber.postgres.destination import Targets
from tranrepl.subscriber.postgres.procedures import MASK_TYPE, Target, bit_is_set, equality, trusted
from tranrepl.subscriber.postgres.statement_pipeline import Statement, run_script

_DESTINATION = sql.Identifier("destination")
_STAGED = sql.Identifier("staged")
_MASK = sql.Identifier("mask")
_MOST_COLUMNS = 1600
_INTEGERS = frozenset({"smallint", "integer", "bigint"})
MadeBy = Callable[[Target], sql.Composed]
"""What declares a staging table's columns."""

Settings = tuple[LiteralString, ...]
"""How the planner is to find rows, a statement each."""

FIND_BY_KEY: Final = (
    "SET LOCAL enable_hashjoin = off",
    "SET LOCAL enable_mergejoin = off",
    "SET LOCAL enable_nestloop = DEFAULT",
    "SET LOCAL work_mem = DEFAULT",
)
"""A join that reads the whole table, as the planner's own hash join does, makes each commit batch cost as much as the
table has rows. By its key a row costs the same in a table of any size."""
_FIND_BY_RANGE: Final = (
    "SET LOCAL enable_mergejoin = DEFAULT",
    "SET LOCAL enable_nestloop = off",
    "SET LOCAL work_mem = '64MB'",
)
"""Neighbours are found by a merge: a range of the key's index is read once, beside the sorted keys, which the memory
keeps from a sort on disk."""
FIND_AS_BEFORE: Final = (
    "SET LOCAL enable_hashjoin = DEFAULT",
    "SET LOCAL enable_mergejoin = DEFAULT",
    "SET LOCAL enable_nestloop = DEFAULT",
    "SET LOCAL work_mem = DEFAULT",
)
"""For what a database's own procedures join."""


class BulkApply:
    """Applies steps in bulk, inside the open transaction."""

    def __init__(self, session: Session, targets: Targets, parents_first: Callable[[], Mapping[int, int]]) -> None:
        """Set where it applies; `parents_first` returns the rank of each article by then."""
        self._session = session
        self._targets = targets
        self._rank = parents_first
        self._made: set[str] = set()
        self._filled: set[str] = set()
        self._given_up: set[str] = set()
        self._stage_seconds = 0.0

    def prepare(self, step: BulkStep) -> None:
        """Make the staging tables. Before what may have to be undone, for it would undo them."""
        self._targets.find(folded.article.article_id for folded in step.folded)
        needed: list[tuple[RegisteredArticle, MadeBy]] = []
        for folded in step.folded:
            if len(folded.deletes[0]) or len(folded.absent[0]):
                needed.append((folded.article, _key_table))
            if folded.updates is not None:
                needed.append((folded.article, _row_table))
        statements = [it for article, made_by in needed for it in self._made_ready(article, made_by)]
        statements += [sql.SQL("DROP TABLE IF EXISTS {}").format(_temporary(it)) for it in sorted(self._given_up)]
        self._given_up.clear()
        if statements:
            # One message for all of them.
            self._session.execute(sql.SQL("; ").join(statements))

    def apply(self, step: BulkStep) -> None:
        """Apply a step: deletes, children first; updates and inserts, parents first. Raises MismatchError, or as the
        driver does."""
        texts = {it.folded.article.article_id: it for it in step.texts or map(fold_text, step.folded)}
        parents_first = [texts[it.article.article_id] for it in step.parents_first(self._rank())]
        script = _Script(self._targets)
        for it in reversed(parents_first):
            if it.keys is not None:
                script.delete(it.folded, it.keys)
        for it in parents_first:
            if it.updates is not None:
                script.update(it.folded, it.updates)
            script.insert(it.folded, it.inserts)
        seconds = run_script(self._session, script.statements)
        self._stage_seconds += sum(seconds[place] for place in script.staging)

    def take_stage_seconds(self) -> float:
        seconds, self._stage_seconds = self._stage_seconds, 0.0
        return seconds

    def committed(self) -> None:
        """Note that the commit emptied the staging tables."""
        self._filled.clear()

    def forget(self, article: RegisteredArticle) -> None:
        """Let the staging tables go of a definition that has no commands any more. A commit empties all of them where
        its transaction touched one: they are dropped with the next step."""
        names = self._made.intersection(_table_name(article, it) for it in (_key_table, _row_table))
        self._made -= names
        self._filled -= names
        self._given_up |= names

    def rolled_back(self) -> None:
        """Forget the staging tables: they may be gone, where this transaction had made them."""
        self._made.clear()
        self._filled.clear()

    def _made_ready(self, article: RegisteredArticle, made_by: MadeBy) -> list[sql.Composed]:
        """Return the statements that make a staging table, or empty it."""
        name = _table_name(article, made_by)
        filled, made = name in self._filled, name in self._made
        self._filled.add(name)
        self._made.add(name)
        if made:
            return [sql.SQL("TRUNCATE {}").format(_temporary(name))] if filled else []
        columns = made_by(self._targets[article.article_id])
        return [
            sql.SQL("DROP TABLE IF EXISTS {}").format(_temporary(name)),
            sql.SQL("CREATE TEMPORARY TABLE {} ({}) ON COMMIT DELETE ROWS").format(_temporary(name), columns),
        ]


class _Script:
    """What applies folds, statement by statement."""

    def __init__(self, targets: Targets) -> None:
        self._targets = targets
        self._found_by: Settings = FIND_BY_KEY
        self.statements: list[Statement] = []
        self.staging: list[int] = []
        """Which statements fill staging tables."""

    def delete(self, folded: Folded, keys: KeyText) -> None:
        target = self._targets[folded.article.article_id]
        stage = _temporary(_table_name(folded.article, _key_table))
        destination = qualified(target.article.destination)
        self._stage(stage, [], keys.text)
        matches = _key_matches(target)
        if len(folded.absent[0]):
            query = sql.SQL("SELECT FROM {} AS {} JOIN {} AS {} ON {} WHERE {}.key_action = {} LIMIT 1").format(
                destination,
                _DESTINATION,
                stage,
                _STAGED,
                matches,
                _STAGED,
                trusted(str(KeyAction.ABSENT.value)),
            )
            self._find(FIND_BY_KEY)
            self.statements.append(Statement(query, require=partial(_require_absence, target)))
        if len(folded.deletes[0]):
            query = sql.SQL("DELETE FROM {} AS {} USING {} AS {} WHERE {} AND {}.key_action = {}").format(
                destination, _DESTINATION, stage, _STAGED, matches, _STAGED, trusted(str(KeyAction.DELETE.value))
            )
            self._change(query, target, keys.deletes, Operation.DELETE, len(folded.deletes[0]))

    def update(self, folded: Folded, rows: RowText) -> None:
        target = self._targets[folded.article.article_id]
        stage = _temporary(_table_name(folded.article, _row_table))
        columns = [*_key_names(target), *map(_value_name, rows.positions)]
        self._stage(stage, [*columns, _MASK] if rows.masked else columns, rows.text)
        query = _update_statement(target, stage, rows.positions, rows.always)
        self._change(query, target, rows.updates, Operation.UPDATE, len(folded.updates or ()))

    def insert(self, folded: Folded, lines: memoryview) -> None:
        if len(folded.inserts) == 0:
            return
        target = self._targets[folded.article.article_id]
        columns = [sql.Identifier(column.name) for column in target.columns]
        # What comes twice, or is there already, the unique key refuses.
        require = partial(_require, target, Operation.INSERT, len(folded.inserts))
        self.statements.append(Statement(_copy(qualified(target.article.destination), columns), lines, require))

    def _stage(self, table: sql.Identifier, columns: Sequence[sql.Identifier], text: memoryview) -> None:
        self.staging.append(len(self.statements))
        self.statements.append(Statement(_copy(table, columns), text))

    def _change(
        self, query: sql.Composed, target: Target, between: KeyRange | None, operation: Operation, rows: int
    ) -> None:
        """Add a statement over staged keys, all of which are `between` where that is given."""
        if between is None or not _INTEGERS.issuperset(_key_types(target)):
            self._find(FIND_BY_KEY)
        else:
            (key,) = target.article.key_positions
            query = sql.SQL("{} AND {}.{} BETWEEN {} AND {}").format(
                query, _DESTINATION, sql.Identifier(target.columns[key].name), *map(sql.Literal, between)
            )
            self._find(_FIND_BY_RANGE)
        self.statements.append(Statement(query, require=partial(_require, target, operation, rows)))

    def _find(self, by: Settings) -> None:
        """Set how the statements from here on find rows."""
        if by != self._found_by:
            self.statements += [Statement(sql.SQL(setting)) for setting in by]
            self._found_by = by


def _require(target: Target, operation: Operation, wanted: int, met: int) -> None:
    if met != wanted:
        raise MismatchError(f"{operation.name}s in {target.article.destination} do not each find one row")


def _require_absence(target: Target, met: int) -> None:
    if met:
        raise MismatchError(f"a row to be inserted exists in {target.article.destination} already")


def _copy(table: sql.Identifier, columns: Sequence[sql.Identifier]) -> sql.Composed:
    into = sql.SQL("({})").format(sql.SQL(", ").join(columns)) if columns else sql.SQL("")
    return sql.SQL("COPY {} {} FROM STDIN").format(table, into)


def _key_table(target: Target) -> sql.Composed:
    return sql.SQL("key_action smallint NOT NULL, {}").format(_declared(_key_names(target), _key_types(target)))


def fits_a_row_table(article: RegisteredArticle) -> bool:
    """Return whether the article's UPDATEs can be staged: the key, the values and the mask are columns of one table."""
    return len(article.key_positions) + len(article.columns) + 1 <= _MOST_COLUMNS


def _row_table(target: Target) -> sql.Composed:
    return sql.SQL("{}, {}, {} {}").format(
        _declared(_key_names(target), _key_types(target)),
        _declared(map(_value_name, range(len(target.columns))), [it.base_type_name for it in target.columns]),
        _MASK,
        trusted(MASK_TYPE),
    )


def _table_name(article: RegisteredArticle, made_by: MadeBy) -> str:
    return f"tranrepl_{'keys' if made_by is _key_table else 'rows'}_{article.article_id}"


def _temporary(name: str) -> sql.Identifier:
    return sql.Identifier("pg_temp", name)


def _key_names(target: Target) -> list[sql.Identifier]:
    return [sql.Identifier(f"k{place}") for place in range(len(target.article.key_positions))]


def _key_types(target: Target) -> list[str]:
    return [target.columns[at].base_type_name for at in target.article.key_positions]


def _value_name(position: int) -> sql.Identifier:
    return sql.Identifier(f"c{position}")


def _declared(names: Iterable[sql.Identifier], types: Sequence[str]) -> sql.Composed:
    declared = [
        sql.SQL("{} {}").format(name, type_sql(type_name)) for name, type_name in zip(names, types, strict=True)
    ]
    return sql.SQL(", ").join(declared)


def _key_matches(target: Target) -> sql.Composed:
    key = zip(target.article.key_positions, _key_names(target), strict=True)
    return sql.SQL(" AND ").join(
        sql.SQL("{}.{} {} {}.{}").format(
            _DESTINATION, sql.Identifier(target.columns[at].name), equality(target.columns[at]), _STAGED, name
        )
        for at, name in key
    )


def _update_statement(
    target: Target, stage: sql.Identifier, positions: Sequence[int], always: frozenset[int]
) -> sql.Composed:
    destination, matches = qualified(target.article.destination), _key_matches(target)
    if not positions:
        return sql.SQL("SELECT FROM {} AS {} JOIN {} AS {} ON {}").format(
            destination, _DESTINATION, stage, _STAGED, matches
        )
    assigned = [_assignment(target, at, always=at in always) for at in positions]
    return sql.SQL("UPDATE {} AS {} SET {} FROM {} AS {} WHERE {}").format(
        destination, _DESTINATION, sql.SQL(", ").join(assigned), stage, _STAGED, matches
    )


def _assignment(target: Target, at: int, *, always: bool) -> sql.Composed:
    column = sql.Identifier(target.columns[at].name)
    value = sql.SQL("{}.{}").format(_STAGED, _value_name(at))
    if always:
        return sql.SQL("{} = {}").format(column, value)
    mask = sql.SQL("{}.{}").format(_STAGED, _MASK)
    return sql.SQL("{} = CASE WHEN {} THEN {} ELSE {}.{} END").format(
        column, bit_is_set(at, mask), value, _DESTINATION, column
    )
