"""What each call syntax sends: the arguments of a command, in order.

Source: "Transactional Articles - Specify How Changes Are Propagated", "Call Syntax for Stored Procedures". A statement
(`SQL`) takes the arguments of SCALL for an UPDATE and of CALL otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tranrepl.article import RegisteredArticle
from tranrepl.commands import Operation


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
    """INSERT `c1..cn`; UPDATE `c1..cn, pkc1..pkcm, bitmap`; DELETE `pkc1..pkcm`. TRUNCATE takes none."""
    values = tuple(Argument(f"c{at + 1}", Image.AFTER, at) for at in range(len(article.columns)))
    key = tuple(Argument(f"pkc{ordinal + 1}", Image.BEFORE, at) for ordinal, at in enumerate(article.key_positions))
    match operation:
        case Operation.INSERT:
            return values
        case Operation.UPDATE:
            return (*values, *key, BITMAP)
        case Operation.DELETE:
            return key
        case _:
            return ()
