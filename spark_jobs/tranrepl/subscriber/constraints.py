"""What of a Subscriber's tables makes the order of two transactions matter: unique keys and foreign keys."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class _Constraint(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class UniqueKey(_Constraint):
    """A primary key, unique constraint or unique index; positions (from 0) among the article's published columns."""

    article_id: int
    positions: tuple[int, ...]
    values_known: bool = True
    """False where it is over an expression or over columns that are not published: any change may touch any value."""


class Reference(_Constraint):
    """A foreign key: `positions[i]` of the article refers to `parent_positions[i]` of the parent."""

    article_id: int
    positions: tuple[int, ...]
    parent_id: int
    parent_positions: tuple[int, ...]


class Constraints(_Constraint):
    """Of all tables that a subscription delivers to. Primary keys of the articles need not be among them."""

    unique_keys: tuple[UniqueKey, ...] = ()
    references: tuple[Reference, ...] = ()
