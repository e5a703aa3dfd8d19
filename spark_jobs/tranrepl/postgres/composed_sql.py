"""SQL for PostgreSQL, composed from what was parsed of a definition: no text of a message is in it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from psycopg import sql

from tranrepl.errors import ConfigurationError
from tranrepl.model.source_sql import (
    Token,
    TokenKind,
    Tokens,
    read_bound,
    read_condition,
    read_division,
    read_expression,
    read_name,
    read_type,
)

_PLAIN = frozenset(
    {
        *("bigint", "bit", "boolean", "bytea", "character", "cidr", "date", "double", "inet", "integer", "interval"),
        *("json", "jsonb", "macaddr", "money", "name", "numeric", "oid", "point", "precision", "real", "smallint"),
        *("text", "time", "timestamp", "uuid", "varying", "with", "without", "xml", "zone"),
        *("int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange", "tsvector", "tsquery"),
        *("year", "month", "day", "hour", "minute", "second", "to"),
    }
)
"""Words of types that are written without quotes."""

_ENDS_OTHERS = frozenset({TokenKind.MARK, TokenKind.OPERATOR})
"""What never becomes one token with what is of another kind."""


class Written(sql.SQL):
    """SQL that was written elsewhere: it has no places for values."""


def type_sql(text: str) -> sql.Composed:
    """Return a type that a catalogue wrote. Raises ConfigurationError where it is none."""
    return _joined(_read(read_type, text), _of_type)


def name_sql(text: str) -> sql.Composed:
    """Return a name, as of a collation. Raises ConfigurationError."""
    return _joined(_read(read_name, text), _of_name)


def expression_sql(text: str) -> sql.Composed:
    """Return an expression that a catalogue wrote, of the database's own functions. Raises ConfigurationError."""
    return _joined(_read(read_expression, text), _of_expression)


def is_left_out(text: str) -> bool:
    """Return whether an expression is not taken over."""
    try:
        read_expression(text)
    except ValueError:
        return True
    return False


def condition_sql(text: str) -> Written:
    """Return a row filter, as the publication's file has it. Raises ConfigurationError where it is not one expression,
    which nothing in it ends."""
    _read(read_condition, text)
    return Written(text)


def bound_sql(text: str) -> sql.Composed:
    """Return a partition's limits. Raises ConfigurationError."""
    return _joined(_read(read_bound, text), _of_expression)


def division_sql(text: str) -> sql.Composed:
    """Return what a table is divided into partitions by. Raises ConfigurationError."""
    return _joined(_read(read_division, text), _of_expression)


def _read(read: Callable[[str], Tokens], text: str) -> Tokens:
    try:
        return read(text)
    except ValueError as error:
        raise ConfigurationError(
            str(error),
            remedy="`tranrepl setup FILE`, then `tranrepl reinitialize FILE`: both read the Publisher's catalogue",
        ) from None


def _joined(tokens: Tokens, part: Callable[[Token], sql.Composable]) -> sql.Composed:
    parts = [part(tokens[0])]
    for before, token in pairwise(tokens):
        is_apart = token.spaced or _ENDS_OTHERS.isdisjoint((before.kind, token.kind))
        parts += [sql.SQL(" "), part(token)] if is_apart else [part(token)]
    return sql.Composed(parts)


def _of_type(token: Token) -> sql.Composable:
    is_plain = token.kind is TokenKind.WORD and token.text.lower() in _PLAIN
    return sql.SQL(token.text.lower()) if is_plain else _of_name(token)


def _of_name(token: Token) -> sql.Composable:
    if token.kind is TokenKind.WORD:
        return sql.Identifier(token.text.lower())
    return _of_expression(token)


def _of_expression(token: Token) -> sql.Composable:
    match token.kind:
        case TokenKind.NAME:
            return sql.Identifier(token.text)
        case TokenKind.TEXT:
            return sql.Literal(token.text)
        case _:
            return Written(token.text)
