"""SQL in a Publisher's definitions, taken apart: types, names, expressions, and the limits and keys of partitions.

Any login that may write to the Publisher's log can write these texts, so none of them becomes SQL. What is put together
again is names, numbers, constants and signs, each by itself; what does not parse as a whole is refused.

Source: `format_type_extended`, `get_range_partbound_string` and `pg_get_partkeydef_worker` in PostgreSQL; its
`scan.l` for the tokens.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from itertools import pairwise


class TokenKind(Enum):
    """What a token is; in `text`, a name and a text are without their quotes."""

    WORD = auto()
    NAME = auto()
    NUMBER = auto()
    TEXT = auto()
    ESCAPED = auto()
    """A constant that is kept as it was written: E'…', B'…', X'…', which have one meaning in any session."""
    OPERATOR = auto()
    MARK = auto()


@dataclass(frozen=True, slots=True)
class Token:
    kind: TokenKind
    text: str
    spaced: bool
    """Blanks stand before it."""


Tokens = tuple[Token, ...]

_TOKEN = re.compile(
    r"""(?P<blank>[ \t\r\n\f]+)
      | (?P<escaped>[bBxX]'[0-9a-fA-F]*' | [eE]'(?:[^'\\]|''|\\.)*')
      | (?P<text>'(?:[^']|'')*')
      | \$(?P<tag>(?:[^\W\d]\w*)?)\$(?P<dollar>.*?)\$(?P=tag)\$
      | (?P<name>"(?:[^"]|"")+")
      | (?P<number>[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?(?!\w))
      | (?P<word>(?![uU]&['"])[^\W\d][\w$]*+(?!['"]))
      | (?P<mark>::|[(),.:\[\]])
      | (?P<operator>[-+*/<>=~!@\#%^&|`?]+)""",
    re.VERBOSE | re.DOTALL,
)
_KINDS = {
    "escaped": TokenKind.ESCAPED,
    "text": TokenKind.TEXT,
    "dollar": TokenKind.TEXT,
    "name": TokenKind.NAME,
    "number": TokenKind.NUMBER,
    "word": TokenKind.WORD,
    "mark": TokenKind.MARK,
    "operator": TokenKind.OPERATOR,
}
_COMMENTS = ("--", "/*")
_CLOSED_BY = {"(": ")", "[": "]"}
_CONSTANTS = (TokenKind.TEXT, TokenKind.ESCAPED, TokenKind.NUMBER)

# Tokens as a line of words, which a grammar is a regular expression of: kinds are in capital letters.
_NAME = r"(?:[a-z_][a-z0-9_$]*|NAME)"
_MODIFIER = rf"(?:(?:- )?NUMBER|TEXT|{_NAME})"
_MODIFIERS = rf"(?: \( {_MODIFIER}(?: , {_MODIFIER})* \))?"
_FIELD = "(?:year|month|day|hour|minute|second)"
_TYPE = re.compile(
    rf"(?:(?:time|timestamp){_MODIFIERS} with(?:out)? time zone|interval(?: {_FIELD}(?: to {_FIELD})?)?{_MODIFIERS}"
    rf"|(?:character|bit) varying{_MODIFIERS}|double precision|(?:{_NAME} \. )?{_NAME}{_MODIFIERS})(?: \[ \])*"
)
_QUALIFIED = re.compile(rf"(?:{_NAME} \. )?{_NAME}")
_VALUE = r"(?:(?:- )?NUMBER|TEXT|ESCAPED|true|false|null|minvalue|maxvalue)"
_VALUES = rf"\( {_VALUE}(?: , {_VALUE})* \)"
_BOUND = re.compile(
    rf"default|for values (?:in {_VALUES}|from {_VALUES} to {_VALUES}|with \( modulus NUMBER , remainder NUMBER \))"
)
_CONSTANT = re.compile(rf"(?:(?:- )?NUMBER|TEXT|true|false|\( (?:- )?NUMBER \))(?: :: (?:{_TYPE.pattern}))?")
_STRATEGIES = ("range", "list", "hash")
_QUALIFYING = ("operator",)
"""`OPERATOR(schema.+)`: an operator of a schema."""
_OF_OTHER_ROWS = ("select", "with", "values", "table")


@lru_cache(maxsize=4096)
def read_type(text: str) -> Tokens:
    """Parse a type as `format_type` writes it. Raises ValueError."""
    return _matching(text, _TYPE, "type")


def is_type(text: str) -> bool:
    """Return whether a text parses as a type."""
    try:
        read_type(text)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=1024)
def read_name(text: str) -> Tokens:
    """Parse a name, with its schema or without. Raises ValueError."""
    return _matching(text, _QUALIFIED, "name")


@lru_cache(maxsize=1024)
def read_bound(text: str) -> Tokens:
    """Parse the limits of a partition, whose values are constants. Raises ValueError."""
    return _matching(text, _BOUND, "partition's limits")


@lru_cache(maxsize=1024)
def read_condition(text: str) -> Tokens:
    """Parse one expression of any functions: what stands in parentheses cannot leave them. Raises ValueError."""
    return _contained(text, "expression")


@lru_cache(maxsize=1024)
def read_expression(text: str) -> Tokens:
    """Parse one expression of constants, columns, and functions and operators of the database itself, which have no
    schema before them. Raises ValueError."""
    return _of_this_row(text, _contained(text, "expression"))


@lru_cache(maxsize=1024)
def read_division(text: str) -> Tokens:
    """Parse what a table is divided into partitions by. Raises ValueError."""
    tokens = _of_this_row(text, _contained(text, "partition key"))
    strategy, *rest = tokens
    depths = list(_depths(rest))
    if strategy.text.lower() not in _STRATEGIES or strategy.kind is not TokenKind.WORD:
        raise _unread(text, "partition key")
    if len(depths) < 3 or depths[0] != 1 or 0 in depths[:-1]:
        raise _unread(text, "partition key")
    return tokens


@lru_cache(maxsize=1024)
def constant_text(text: str) -> str | None:
    """Return the value of an expression that is one constant, as in `5`, `'x'::text`, `true`; None where it is anything
    else."""
    try:
        tokens = _tokens(text, "constant")
    except ValueError:
        return None
    if _CONSTANT.fullmatch(" ".join(map(_shape, tokens))) is None:
        return None
    first, *rest = (it for it in tokens if not _is(it, "("))
    if first.kind is TokenKind.OPERATOR:
        return f"-{rest[0].text}"
    return first.text.lower()[0] if first.kind is TokenKind.WORD else first.text


def _unread(text: str, kind: str) -> ValueError:
    return ValueError(f"{text!r} is no {kind} that is taken over")


def _matching(text: str, grammar: re.Pattern[str], kind: str) -> Tokens:
    tokens = _tokens(text, kind)
    if grammar.fullmatch(" ".join(map(_shape, tokens))) is None:
        raise _unread(text, kind)
    return tokens


def _shape(token: Token) -> str:
    match token.kind:
        case TokenKind.WORD:
            return token.text.lower()
        case TokenKind.MARK | TokenKind.OPERATOR:
            return token.text
        case _:
            return token.kind.name


def _tokens(text: str, kind: str) -> Tokens:
    found, at, spaced = list[Token](), 0, False
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None or "\0" in match[0]:
            raise _unread(text, kind)
        at = match.end()
        if match.lastgroup == "blank":
            spaced = True
            continue
        found.append(Token(_KINDS[match.lastgroup], _content(match), spaced))
        spaced = False
    if not found or any(it.kind is TokenKind.OPERATOR and any(part in it.text for part in _COMMENTS) for it in found):
        raise _unread(text, kind)
    return tuple(found)


def _content(match: re.Match[str]) -> str:
    group = match.lastgroup or ""
    if group == "text":
        return match[0][1:-1].replace("''", "'")
    if group == "name":
        return match[0][1:-1].replace('""', '"')
    return str(match[group])


def _contained(text: str, kind: str) -> Tokens:
    tokens = _tokens(text, kind)
    depths = list(_depths(tokens))
    # Two constants side by side are one in SQL.
    together = any(one.kind in _CONSTANTS and other.kind in _CONSTANTS for one, other in pairwise(tokens))
    if not depths or depths[-1] != 0 or -1 in depths or together:
        raise _unread(text, kind)
    if tokens[0].text == "," or any(depth == 0 and it.text == "," for depth, it in zip(depths, tokens, strict=True)):
        raise _unread(text, kind)
    return tokens


def _depths(tokens: Sequence[Token]) -> Iterator[int]:
    """Yield how many brackets are open after each token; -1 where one is closed that was not opened."""
    open_brackets = list[str]()
    for token in tokens:
        if token.kind is TokenKind.MARK and token.text in _CLOSED_BY:
            open_brackets.append(_CLOSED_BY[token.text])
        closes = token.kind is TokenKind.MARK and token.text in _CLOSED_BY.values()
        if closes and (not open_brackets or open_brackets.pop() != token.text):
            yield -1
            return
        yield len(open_brackets)


def _of_this_row(text: str, tokens: Tokens) -> Tokens:
    if _is_word(tokens[0], _OF_OTHER_ROWS) or any(_is_word(it, _QUALIFYING) for it in tokens):
        raise _unread(text, "expression")
    if any(_is(one, "(") and _is_word(other, _OF_OTHER_ROWS) for one, other in pairwise(tokens)):
        raise _unread(text, "expression")
    for dot, _, bracket in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if _is(dot, ".") and _is(bracket, "("):
            raise _unread(text, "expression")
    return tokens


def _is(token: Token, mark: str) -> bool:
    return token.kind is TokenKind.MARK and token.text == mark


def _is_word(token: Token, words: Collection[str]) -> bool:
    return token.kind is TokenKind.WORD and token.text.lower() in words
