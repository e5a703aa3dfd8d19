"""What the text of a T-SQL procedure, and its parameters in the catalogue, say about how it may be called."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest

from sqlglot import Token, TokenType
from sqlglot.dialects.tsql import TSQL
from sqlglot.errors import SqlglotError

from tranrepl.model.call_syntax import BITMAP, Argument, Image
from tranrepl.subscriber.base.procedures import count_problem

_NO_KEYWORDS = frozenset({TokenType.STRING, TokenType.NATIONAL_STRING, TokenType.IDENTIFIER})
_TRANSACTION = frozenset({"TRAN", "TRANSACTION"})


@dataclass(frozen=True, slots=True)
class Parameter:
    """One of `sys.all_parameters`: `max_length` in bytes, -1 for `max`."""

    name: str
    type_name: str
    max_length: int


def ends_transaction(text: str) -> bool:
    """Return whether a procedure ends the transaction that it is called in, or begins one that it does not end.

    BEGIN TRANSACTION with COMMIT counts up and down again (@@TRANCOUNT) and ends nothing; nor does a ROLLBACK to a
    savepoint. A text that cannot be read has none: what it does is seen when it is called.
    """
    words = _keywords(_tokens(text))
    pairs = list(zip_longest(words, words[1:], words[2:], fillvalue=""))
    saved = {name.strip("[]").upper() for word, after, name in pairs if word == "SAVE" and after in _TRANSACTION}
    begins = any(word == "BEGIN" and after in _TRANSACTION for word, after, _ in pairs)
    ends = any(
        word == "COMMIT" or (word == "ROLLBACK" and not (after in _TRANSACTION and name.strip("[]").upper() in saved))
        for word, after, name in pairs
    )
    return begins is not ends


def signature_problem(parameters: Sequence[Parameter], text: str, passed: tuple[Argument, ...]) -> str | None:
    """Return why a procedure cannot be called with these arguments, by position; None where it can.

    Parameters beyond them must have defaults, which only the text shows: the catalogue knows them of CLR procedures
    alone.
    """
    beyond = {it.name.removeprefix("@").lower() for it in parameters[len(passed) :]}
    if len(parameters) < len(passed) or not beyond <= set(_with_default(_tokens(text))):
        return count_problem(len(parameters), len(passed))
    return _mask_problem(parameters[passed.index(BITMAP)], passed) if BITMAP in passed else None


def _mask_problem(parameter: Parameter, passed: tuple[Argument, ...]) -> str | None:
    """Return why a parameter does not take the whole mask: the server would cut it without a word."""
    needed = -(-sum(it.image is Image.AFTER for it in passed) // 8)
    binary = parameter.type_name in ("binary", "varbinary")
    if binary and (parameter.max_length < 0 or parameter.max_length >= needed):
        return None
    length = f"({parameter.max_length})" if binary else ""
    return f"takes the mask as {parameter.name} {parameter.type_name}{length}; it needs binary({needed})"


def _tokens(text: str) -> list[Token]:
    try:
        return TSQL.Tokenizer().tokenize(text)
    except SqlglotError:
        return []


def _keywords(tokens: Sequence[Token]) -> list[str]:
    """Return the texts of keywords and plain names in capitals; of quoted names with their brackets; empty for text."""
    return [f"[{it.text}]" if it.token_type in _NO_KEYWORDS else it.text.upper() for it in tokens]


def _with_default(tokens: Sequence[Token]) -> Iterator[str]:
    """Yield the names, in small letters, of the parameters in a procedure's header that have a default."""
    depth, name = 0, ""
    for before, token in pairwise(tokens):
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if before.token_type is TokenType.PARAMETER:
            name = token.text.lower()
        elif name and token.token_type is TokenType.EQ:
            yield name
        elif name and depth <= 0 and token.token_type in (TokenType.ALIAS, TokenType.WITH):
            return
