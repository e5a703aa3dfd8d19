"""What lets a table be written in bulk: where no trigger or procedure depends on commit order.

Bulk gives up the order of rows, and calls no procedure. So a procedure must be the generated one, no trigger may fire,
no cascade may act, no column may fill itself with a value that depends on the order, and the key must be unique, so
that the number of rows that a statement meets proves that each was met.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import Method, Operation
from tranrepl.subscriber.base.staged_bulk import BulkRules, BulkTarget, Values
from tranrepl.subscriber.batching.steps import Operations
from tranrepl.subscriber.capabilities import NameLimit
from tranrepl.subscriber.constraints import parents_first
from tranrepl.subscriber.procedure_names import PREFIXES, generates, procedure_name

Place = tuple[str, str]
"""Schema and name of a table."""
OfArticle = tuple[int, Operation]


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What a Subscriber's catalogue says of a table that can be written in bulk at all."""

    unique_keys: Sequence[frozenset[str]]
    trigger_events: frozenset[Operation]
    """Operations that fire a trigger."""
    cascades: bool
    """A foreign key of another table acts on an UPDATE or DELETE."""
    filled_in_order: frozenset[str]
    """Columns that an INSERT may leave out, and that are then filled with a value that depends on the order of rows."""
    counting: frozenset[str] = frozenset()
    """Columns that may count up even where an INSERT gives them a value."""
    filled_at_update: bool = False
    """An UPDATE fills a column that it does not set."""
    fixed: frozenset[str] = frozenset()
    """Columns that no UPDATE may set."""

    def allows(self, operation: Operation, article: RegisteredArticle) -> bool:
        """Return whether bulk and commit order come to the same rows."""
        key = {article.columns[at].name for at in article.key_positions}
        if operation in self.trigger_events or not any(unique <= key for unique in self.unique_keys):
            return False
        published = {column.name for column in article.columns}
        match operation:
            case Operation.INSERT:
                return self.filled_in_order <= published and self.counting & published <= key
            case Operation.UPDATE:
                return not self.cascades and not self.filled_at_update and not self.fixed & (published - key)
            case _:
                return not self.cascades


class WritableTable(Protocol[Values]):
    """A table that can be written in bulk at all."""

    def facts(self) -> TableFacts: ...

    def target(self, article: RegisteredArticle) -> BulkTarget[Values] | None:
        """Return the article's table as bulk statements name it; None where a column cannot be staged."""
        ...


def rules_of(
    articles: Mapping[int, RegisteredArticle],
    places: Mapping[int, Place],
    table_of: Callable[[RegisteredArticle, Place], WritableTable[Values] | None],
    unedited: frozenset[OfArticle],
    references: Iterable[tuple[Place, Place]],
) -> BulkRules[Values]:
    """Return which operations of the articles may go in bulk; `places` are their tables', `references` are foreign keys
    (child, parent)."""
    operations, targets = dict[int, Operations](), dict[int, BulkTarget[Values]]()
    for number, article in articles.items():
        table = table_of(article, places[number])
        target = table.target(article) if table is not None else None
        if table is None or target is None:
            continue
        facts = table.facts()
        allowed = frozenset(it for it in PREFIXES if (number, it) in unedited and facts.allows(it, article))
        if allowed:
            operations[number], targets[number] = allowed, target
    return BulkRules(operations, targets, parents_first(places, references))


def unedited_operations(
    articles: Mapping[int, RegisteredArticle],
    names: NameLimit,
    still_as_made: Callable[[Sequence[str]], Iterable[str]],
) -> frozenset[OfArticle]:
    """Return what is applied by a statement, or by a generated procedure that is still as setup made it.

    `still_as_made` looks at the catalogue: of the names of generated procedures, it returns those of the unedited.
    """
    generated: dict[str, list[OfArticle]] = {}
    plain = set[OfArticle]()
    for number, article in articles.items():
        for operation in PREFIXES:
            propagation = article.propagation(operation)
            if generates(propagation):
                name = procedure_name(operation, article.destination, names)
                generated.setdefault(name, []).append((number, operation))
            elif propagation.method is Method.STATEMENT:
                plain.add((number, operation))
    unedited = still_as_made(list(generated)) if generated else ()
    return frozenset(plain.union(*(generated.get(name, ()) for name in unedited)))
