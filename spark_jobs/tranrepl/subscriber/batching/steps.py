"""A piece of commands as the steps that apply it: in bulk where that may be, serially where it must.

Commands that only their own order makes right (custom procedures, triggers, TRUNCATE …) stay in their place: what goes
in bulk before and after them is divided there. TRUNCATE of several tables at once is a step by itself, and so are a
schema change and a script, which no other command passes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from tranrepl.errors import InternalError
from tranrepl.model.arrays import Bools
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import Operation
from tranrepl.model.schema_change import SchemaChange
from tranrepl.model.script import Script
from tranrepl.subscriber.batching.commit_batches import unless_too_long
from tranrepl.subscriber.batching.fold import NotFoldableError, fold
from tranrepl.subscriber.batching.fold_text import FoldText
from tranrepl.subscriber.batching.folded import Folded
from tranrepl.subscriber.batching.staging import Kind, StagedText, kind_codes
from tranrepl.subscriber.constraints import behind_another

Operations = frozenset[Operation]
FEWEST_COMMANDS = 100
"""On average, that a step in bulk must have for a piece to be divided at all: each costs some round trips."""
_FEW_STEPS = 16
_ALONE = (int(Operation.SCHEMA), int(Operation.SCRIPT))


@dataclass(frozen=True, slots=True)
class SerialStep:
    """Commands to apply in order, each by itself."""

    commands: pa.Table
    text: StagedText | None = None
    """What is copied for them, where that is known before their turn comes."""


@dataclass(frozen=True, slots=True)
class BulkStep:
    """Commands, and what those of each article come to. No two articles are of one table."""

    commands: pa.Table
    folded: tuple[Folded, ...]
    texts: tuple[FoldText, ...] = ()
    """What is copied for each of `folded`, where that is known before its turn comes."""

    def parents_first(self, rank: Mapping[int, int]) -> list[Folded]:
        """Sort what was folded by the rank of its articles, parents first."""
        return sorted(self.folded, key=lambda it: rank.get(it.article.article_id, 0))


@dataclass(frozen=True, slots=True)
class TruncateStep:
    """TRUNCATE commands of several tables, side by side in one transaction: where a foreign key acts among the tables,
    they go together, or children first."""

    commands: pa.Table


@dataclass(frozen=True, slots=True)
class SchemaStep:
    """A schema change: a single command. What comes before it is of the article's old definition, what comes after it
    of the new one."""

    commands: pa.Table
    change: SchemaChange
    old: RegisteredArticle
    new: RegisteredArticle | None
    """None where the article ends here."""

    @property
    def xact_seqno(self) -> bytes:
        return bytes(self.commands["xact_seqno"][0].as_py())

    @property
    def command_id(self) -> int:
        return int(self.commands["command_id"][0].as_py())


@dataclass(frozen=True, slots=True)
class ScriptStep:
    """A script for the Subscriber: a single command, of no article."""

    commands: pa.Table
    script: Script

    @property
    def xact_seqno(self) -> bytes:
        return bytes(self.commands["xact_seqno"][0].as_py())

    @property
    def command_id(self) -> int:
        return int(self.commands["command_id"][0].as_py())


class MismatchError(Exception):
    """The Subscriber's rows, or the commands' values, are not what bulk can apply: serially, they say which."""


RowStep = SerialStep | BulkStep | TruncateStep
"""A step of rows."""
Step = RowStep | SchemaStep | ScriptStep


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of one piece, in order. `notes` say why commands that may go in bulk go serially, and how often."""

    steps: tuple[Step, ...]
    notes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bulkable:
    """Which operations of which articles (by article_id) a Subscriber may apply in bulk."""

    articles: Mapping[int, RegisteredArticle]
    operations: Mapping[int, Operations] = field(default_factory=dict)
    own_order: frozenset[int] = frozenset()
    """Articles whose commands, where one of a piece goes serially, keep their order among themselves only."""

    def steps(self, commands: pa.Table) -> Steps:
        """Divide a piece of commands (row layout, in order)."""
        notes, steps = Counter[str](), list[Step]()
        alone = np.flatnonzero(np.isin(commands["operation"].to_numpy(), _ALONE)).tolist()
        for start, end in pairwise([-1, *alone, len(commands)]):
            if end - start > 1 or not alone:
                steps += self._steps_of_rows(commands.slice(start + 1, end - start - 1), notes)
            if end < len(commands):
                steps.append(self._step_alone(commands.slice(end, 1)))
        return Steps(tuple(steps), notes)

    def _step_alone(self, command: pa.Table) -> SchemaStep | ScriptStep:
        if command["operation"][0].as_py() == Operation.SCRIPT:
            return ScriptStep(command, Script.model_validate_json(command["after"][0].as_py()))
        return self._schema_step(command)

    def _schema_step(self, commands: pa.Table) -> SchemaStep:
        change = SchemaChange.model_validate_json(commands["after"][0].as_py())
        wanted = [it for it in (change.article_id, change.new_article_id) if it is not None]
        if unregistered := [it for it in wanted if it not in self.articles]:
            raise InternalError(f"a schema change of {change.source} is of unknown article {unregistered[0]}")
        new = None if change.new_article_id is None else self.articles[change.new_article_id]
        return SchemaStep(commands, change, self.articles[change.article_id], new)

    def _steps_of_rows(self, commands: pa.Table, notes: Counter[str]) -> Iterator[RowStep]:
        """Yield the steps of commands without a schema change or script, and note why commands go serially."""
        for step in self._undivided_truncates(commands, notes):
            yield from _truncated_together(step)

    def _undivided_truncates(self, commands: pa.Table, notes: Counter[str]) -> tuple[RowStep, ...]:
        if len(commands) == 0 or not self.operations:
            return (SerialStep(commands),)
        operations = dict(self.operations)
        for shared in _sharing_a_table(commands, self.articles):
            operations.pop(shared, None)
        while True:
            try:
                divided = unless_too_long(commands, lambda: self._divided(commands, operations))
                return divided if divided is not None else (SerialStep(commands),)
            except NotFoldableError as problem:
                notes[str(problem)] += 1
                del operations[problem.article_id]

    def _divided(self, commands: pa.Table, operations: Mapping[int, Operations]) -> tuple[RowStep, ...]:
        bulk = _may_be_bulk(commands, operations)
        later = self._in_their_own_order(commands, bulk)
        if not later.any():
            return self._runs(commands, bulk)
        kept, moved = pa.array(~later), pa.array(later)
        return (*self._runs(commands.filter(kept), bulk[~later]), SerialStep(commands.filter(moved)))

    def _in_their_own_order(self, commands: pa.Table, bulk: Bools) -> Bools:
        """Return which commands are of articles whose order among others does not matter, and of which some go
        serially."""
        numbers = commands["article_id"].to_numpy()
        own = np.intersect1d(numbers[~bulk], list(self.own_order))
        return np.asarray(np.isin(numbers, own), dtype=np.bool_)

    def _runs(self, commands: pa.Table, bulk: Bools) -> tuple[RowStep, ...]:
        cuts = np.flatnonzero(bulk[1:] != bulk[:-1]) + 1
        if len(cuts) >= _FEW_STEPS and int(bulk.sum()) < FEWEST_COMMANDS * len(cuts) // 2:
            return (SerialStep(commands),)
        starts = [0, *cuts.tolist(), len(commands)]
        steps: list[RowStep] = []
        for start, end in pairwise(starts):
            part = commands.slice(start, end - start)
            if end > start:
                steps.append(BulkStep(part, fold(part, self.articles)) if bulk[start] else SerialStep(part))
        return tuple(steps)


def _truncated_together(step: RowStep) -> Iterator[RowStep]:
    """Yield the step, divided where one TRUNCATE comes behind another."""
    behind = behind_another(step.commands)
    if isinstance(step, BulkStep) or not behind.any():
        yield step
        return
    together = behind | np.append(behind[1:], False)
    begins = np.flatnonzero((together[1:] != together[:-1]) | (together[1:] & ~behind[1:])) + 1
    for start, end in pairwise([0, *begins.tolist(), len(together)]):
        part = step.commands.slice(start, end - start)
        yield TruncateStep(part) if together[start] else SerialStep(part)


def _may_be_bulk(commands: pa.Table, operations: Mapping[int, Operations]) -> Bools:
    allowed = [Kind(number, it).code for number, all_of_it in operations.items() for it in all_of_it]
    return np.asarray(np.isin(kind_codes(commands), allowed), dtype=np.bool_)


def _sharing_a_table(commands: pa.Table, articles: Mapping[int, RegisteredArticle]) -> list[int]:
    """Return the articles of the piece that are two definitions of one table: only the order keeps their rows apart."""
    present = [int(it) for it in np.unique(commands["article_id"].to_numpy()) if int(it) in articles]
    articles_of = Counter(articles[it].destination for it in present)
    return [it for it in present if articles_of[articles[it].destination] > 1]
