"""Whether the text of a procedure ends the transaction that it is called in."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import Token, TokenType
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Tokenizer

_NO_KEYWORDS = frozenset({TokenType.STRING, TokenType.NATIONAL_STRING, TokenType.IDENTIFIER})
_BEGINNINGS = frozenset({("START", "TRANSACTION"), ("BEGIN", "TRANSACTION"), ("BEGIN", "TRAN")})


def ends_transaction(body: str, tokenizer: type[Tokenizer]) -> bool:
    """Return whether a COMMIT, a ROLLBACK, or the beginning of another transaction is among a procedure's keywords.

    A text that is not of the tokenizer's language has none: what it does is seen when it is called.
    """
    try:
        words = _keywords(tokenizer().tokenize(body))
    except SqlglotError:
        return False
    following = [*words, ""][1:]
    return any(
        word == "COMMIT" or (word == "ROLLBACK" and not _to_savepoint(words[at + 1 :])) or (word, after) in _BEGINNINGS
        for at, (word, after) in enumerate(zip(words, following, strict=True))
    )


def _keywords(tokens: Sequence[Token]) -> list[str]:
    """Return the texts of keywords in capitals; empty for what is no keyword."""
    return ["" if token.token_type in _NO_KEYWORDS else token.text.upper() for token in tokens]


def _to_savepoint(words: Sequence[str]) -> bool:
    return words[:1] == ["TO"] or words[:2] == ["WORK", "TO"]
