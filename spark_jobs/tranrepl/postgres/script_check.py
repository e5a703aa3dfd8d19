"""Statements of a script that may not run in the transaction that also holds rows and the watermark.

Source: PostgreSQL documentation, the reference pages that say "cannot be executed inside a transaction block".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from sqlglot import Token, TokenType
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import SqlglotError

_OF_A_TRANSACTION = "it ends or begins a transaction, and the script runs in that of the rows around it"
_NOT_IN_A_TRANSACTION = "PostgreSQL runs it outside of transactions only"
_OF_THE_SESSION = (
    "it changes the session, in which rows are applied too: name schemas in full, and give a function its own SET"
)
_OF_PSQL = (
    "a statement begins with a backslash: psql's own commands are not SQL, and a Subscriber's server does not know "
    "them; write SQL in their place"
)
_OF_A_CLIENT = "it needs a client that sends or receives rows"
_REFUSED = {
    ("BEGIN",): _OF_A_TRANSACTION,
    ("START", "TRANSACTION"): _OF_A_TRANSACTION,
    ("COMMIT",): _OF_A_TRANSACTION,
    ("END",): _OF_A_TRANSACTION,
    ("ABORT",): _OF_A_TRANSACTION,
    ("PREPARE", "TRANSACTION"): _OF_A_TRANSACTION,
    ("VACUUM",): _NOT_IN_A_TRANSACTION,
    ("ALTER", "SYSTEM"): _NOT_IN_A_TRANSACTION,
    ("CREATE", "DATABASE"): _NOT_IN_A_TRANSACTION,
    ("DROP", "DATABASE"): _NOT_IN_A_TRANSACTION,
    ("CREATE", "TABLESPACE"): _NOT_IN_A_TRANSACTION,
    ("DROP", "TABLESPACE"): _NOT_IN_A_TRANSACTION,
    ("SET",): _OF_THE_SESSION,
    ("RESET",): _OF_THE_SESSION,
    ("DISCARD",): _OF_THE_SESSION,
}
_MAY_BE_CONCURRENT = (("CREATE", "INDEX"), ("CREATE", "UNIQUE"), ("DROP", "INDEX"), ("REINDEX",), ("ALTER", "TABLE"))


class _Tokenizer(Postgres.Tokenizer):
    """PostgreSQL's words, also those behind words that sqlglot takes for a client's commands, as CALL."""

    COMMANDS: ClassVar[set[TokenType]] = set()


def refusal(script: str) -> str | None:
    """Return why a script cannot run in an open transaction, in words; None where nothing is known against it."""
    try:
        tokens = _Tokenizer().tokenize(script)
    except SqlglotError as error:
        return f"it cannot be read as SQL: {str(error).splitlines()[0]}"
    statements = [it for it in _statements(tokens) if it]
    if not statements:
        return "it holds no statement"
    for words in statements:
        if words[0] == "\\":
            return _OF_PSQL
        if (why := _why_not(words)) is not None:
            return f"statement {' '.join(words[:4])} …: {why}"
    return None


def _statements(tokens: Sequence[Token]) -> Iterator[list[str]]:
    """Yield the words of each statement, in capitals, quoted ones as nothing. The body of a function in standard SQL
    (BEGIN ATOMIC … END) is a part of its statement."""
    words: list[str] = []
    depth = 0
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON and depth == 0:
            yield words
            words = []
            continue
        quoted = token.token_type in (TokenType.IDENTIFIER, TokenType.STRING, TokenType.HEREDOC_STRING)
        word = "" if quoted else token.text.upper()
        depth += _deeper(word, words, depth)
        words.append(word)
    yield words


def _deeper(word: str, before: Sequence[str], depth: int) -> int:
    if word == "ATOMIC" and before[-1:] == ["BEGIN"] and before[0] == "CREATE":
        return 1
    if depth and word == "CASE":
        return 1
    return -1 if depth and word == "END" else 0


def _why_not(words: Sequence[str]) -> str | None:
    for head, why in _REFUSED.items():
        if tuple(words[: len(head)]) == head and words[:2] != ["SET", "CONSTRAINTS"]:
            return why
    if words[0] == "ROLLBACK" and "TO" not in words[:3]:
        return _OF_A_TRANSACTION
    if words[0] == "COPY" and {"STDIN", "STDOUT"}.intersection(words):
        return _OF_A_CLIENT
    concurrent = any(tuple(words[: len(head)]) == head for head in _MAY_BE_CONCURRENT) and "CONCURRENTLY" in words
    return _NOT_IN_A_TRANSACTION if concurrent else None
