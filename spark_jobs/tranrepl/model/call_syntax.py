"""What each call syntax sends: which values travel, and the arguments of a command in order.

Source: "Transactional Articles - Specify How Changes Are Propagated", "Call Syntax for Stored Procedures". A statement
(`SQL`) takes what SCALL takes for an UPDATE and what CALL takes otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum, auto

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import CallSyntax, Operation, Propagation


class Values(Enum):
    """Which values of an image travel."""

    NONE = auto()
    KEY = auto()
    CHANGED = auto()
    ALL = auto()


@dataclass(frozen=True, slots=True)
class Sent:
    """What of a change travels."""

    before: Values
    after: Values
    mask: bool = False


_INSERTED = Sent(Values.NONE, Values.ALL)
_DELETED = {CallSyntax.CALL: Sent(Values.KEY, Values.NONE), CallSyntax.XCALL: Sent(Values.ALL, Values.NONE)}
_UPDATED = {
    CallSyntax.CALL: Sent(Values.KEY, Values.ALL),
    CallSyntax.SCALL: Sent(Values.KEY, Values.CHANGED, mask=True),
    CallSyntax.MCALL: Sent(Values.KEY, Values.ALL, mask=True),
    CallSyntax.XCALL: Sent(Values.ALL, Values.ALL),
}


def sent(propagation: Propagation, operation: Operation) -> Sent:
    """Return what a propagation of `operation` sends."""
    match operation:
        case Operation.INSERT:
            return _INSERTED
        case Operation.UPDATE:
            return _UPDATED[propagation.syntax or CallSyntax.SCALL]
        case Operation.DELETE:
            return _DELETED[propagation.syntax or CallSyntax.CALL]
        case _:
            return Sent(Values.NONE, Values.NONE)


class Image(StrEnum):
    """Where an argument's value comes from: a column of the row layout."""

    BEFORE = "before"
    AFTER = "after"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument: its parameter's name, and the published column (from 0) it carries; the mask carries none."""

    name: str
    image: Image
    position: int | None


BITMAP = Argument("bitmap", Image.CHANGED, None)


def arguments(article: RegisteredArticle, operation: Operation) -> tuple[Argument, ...]:
    """Return the arguments of a call, in order.

    INSERT `c1..cn`; UPDATE `c1..cn, pkc1..pkcm` and, with SCALL or MCALL, `bitmap`; DELETE `pkc1..pkcm`. XCALL:
    `old_c1..old_cn`, and for an UPDATE `c1..cn` after them. TRUNCATE takes none.
    """
    if operation is Operation.TRUNCATE:
        return ()
    return tuple(
        _arguments(sent(article.propagation(operation), operation), len(article.columns), article.key_positions)
    )


def argument_count(propagation: Propagation, operation: Operation, columns: int, key: Sequence[int]) -> int:
    """Return how many arguments a procedure of so many columns would take."""
    return len(list(_arguments(sent(propagation, operation), columns, key)))


def _arguments(what: Sent, columns: int, key: Sequence[int]) -> Iterable[Argument]:
    if what.before is Values.ALL:
        yield from (Argument(f"old_c{at + 1}", Image.BEFORE, at) for at in range(columns))
    if what.after is not Values.NONE:
        yield from (Argument(f"c{at + 1}", Image.AFTER, at) for at in range(columns))
    if what.before is Values.KEY:
        yield from (Argument(f"pkc{ordinal + 1}", Image.BEFORE, at) for ordinal, at in enumerate(key))
    if what.mask:
        yield BITMAP


def key_arguments(article: RegisteredArticle, operation: Operation) -> tuple[Argument, ...]:
    """Return the arguments that carry the old key, in key order: they find the row."""
    before = {it.position: it for it in arguments(article, operation) if it.image is Image.BEFORE}
    return tuple(before[at] for at in article.key_positions)
