"""A column's declaration in the text of a CREATE TABLE statement, as a catalogue keeps it: found, and rewritten."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sqlglot import Token, TokenType
from sqlglot.tokens import Tokenizer

_AFTER_A_TYPE = frozenset(
    {
        *("NOT", "NULL", "DEFAULT", "COMMENT", "CHECK", "CONSTRAINT", "PRIMARY", "UNIQUE", "KEY", "REFERENCES"),
        *("GENERATED", "AS", "AUTO_INCREMENT", "INVISIBLE", "ON", "WITH", "WITHOUT", "COMPRESSED"),
    }
)
"""Words that begin what follows a column's type."""
_OF_A_KEY = frozenset(
    {"ASC", "DESC", "ON", "CONFLICT", "ROLLBACK", "ABORT", "FAIL", "IGNORE", "REPLACE", "AUTOINCREMENT"}
)
"""Words that may follow PRIMARY KEY in a column's declaration, and are about it."""

_WITHOUT_ROWID = re.compile(r"\bWITHOUT\s+ROWID\b\s*,?|,\s*WITHOUT\s+ROWID\b", re.IGNORECASE)
"""What a table has in SQLite that is stored by its primary key."""


@dataclass(frozen=True, slots=True)
class ColumnDeclaration:
    """A declaration in `statement`. Places are offsets of characters, their ends exclusive."""

    statement: str
    start: int
    """Where it begins: its name."""
    type_start: int
    type_end: int
    end: int
    not_null: tuple[int, int] | None
    """Where it says NOT NULL."""

    @property
    def type_name(self) -> str:
        """The type as it is declared; nothing where there is none."""
        return self.statement[self.type_start : self.type_end]

    def written(self, type_name: str | None = None, *, nullable: bool = False) -> str:
        """Return the declaration with another type, and as one that takes NULL."""
        name, rest = self.statement[self.start : self.type_start], self.statement[self.type_end : self.end]
        if nullable and self.not_null is not None:
            first, last = (at - self.type_end for at in self.not_null)
            rest = f"{rest[:first]}NULL{rest[last:]}"
        if type_name is None:
            return f"{name}{self.type_name}{rest}"
        return f"{name}{type_name}{rest}" if self.type_name else f"{name} {type_name}{rest}"

    def statement_with(self, declaration: str) -> str:
        """Return the whole statement with another declaration of this column."""
        return f"{self.statement[: self.start]}{declaration}{self.statement[self.end :]}"


def find_declaration(
    statement: str, column: str, tokenizer: type[Tokenizer], after_a_type: Collection[str] = ()
) -> ColumnDeclaration | None:
    """Return a column's declaration; None where there is none of this name, in any case of its letters.

    `after_a_type` are further words that begin what follows a type.
    """
    for tokens in _declarations(tokenizer().tokenize(statement)):
        if tokens[0].text.lower() == column.lower():
            return _parsed(statement, tokens, _AFTER_A_TYPE | set(after_a_type))
    return None


def table_body(statement: str, tokenizer: type[Tokenizer]) -> str:
    """Return what follows the table's name in a CREATE TABLE statement."""
    first = next(it for it in tokenizer().tokenize(statement) if it.token_type is TokenType.L_PAREN)
    return statement[first.start :]


def with_primary_key(
    statement: str, columns: Sequence[str], tokenizer: type[Tokenizer], dropped: str | None = None
) -> str:
    """Return what follows the table's name in a CREATE TABLE statement, with this primary key and no other, and without
    a column that is dropped. `columns` are quoted."""
    tokens = tokenizer().tokenize(statement)
    declared = list(_declarations(tokens))
    left_out = next((it for it in declared if dropped is not None and it[0].text.lower() == dropped.lower()), None)
    parts = [part for it in declared if it is not left_out and (part := _without_key(statement, it))]
    depth, end = 0, len(statement)
    for token in tokens:
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if depth == 0 and token.token_type is TokenType.R_PAREN:
            end = token.end + 1
            break
    options = statement[end:]
    if columns:
        parts.append(f"PRIMARY KEY ({', '.join(columns)})")
    else:
        options = _WITHOUT_ROWID.sub("", options)
    return f"({', '.join(parts)}){options}"


def with_constraint(statement: str, name: str, text: str | None, tokenizer: type[Tokenizer]) -> str | None:
    """Return a CREATE TABLE statement with another text of the constraint of this name, or without it; None where it
    has none."""
    for tokens in _declarations(tokenizer().tokenize(statement)):
        if len(tokens) > 1 and tokens[0].token_type is TokenType.CONSTRAINT and tokens[1].text == name:
            before, after = statement[: tokens[0].start], statement[tokens[-1].end + 1 :]
            return f"{before.rstrip().removesuffix(',')}{after}" if text is None else f"{before}{text}{after}"
    return None


def with_another_constraint(statement: str, text: str, tokenizer: type[Tokenizer]) -> str:
    """Return a CREATE TABLE statement with a constraint more."""
    end = list(_declarations(tokenizer().tokenize(statement)))[-1][-1].end + 1
    return f"{statement[:end]}, {text}{statement[end:]}"


def _without_key(statement: str, tokens: Sequence[Token]) -> str:
    """Return a declaration as it is without PRIMARY KEY; nothing where it is no more than that."""
    start, end = tokens[0].start, tokens[-1].end + 1
    at = next((place for place, it in enumerate(tokens) if it.token_type is TokenType.PRIMARY_KEY), None)
    if at is None:
        return statement[start:end]
    first = at - 2 if at >= 2 and tokens[at - 2].token_type is TokenType.CONSTRAINT else at
    if first == 0:
        return ""
    last = at
    while last + 1 < len(tokens) and tokens[last + 1].text.upper() in _OF_A_KEY:
        last += 1
    return f"{statement[start : tokens[first].start]}{statement[tokens[last].end + 1 : end]}".strip()


def _declarations(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    """Yield what stands between the commas of the outermost parentheses."""
    depth, found = 0, list[Token]()
    for token in tokens:
        depth -= token.token_type is TokenType.R_PAREN
        if depth == 0 and token.token_type is TokenType.R_PAREN:
            yield found
            return
        if depth == 1 and token.token_type is TokenType.COMMA:
            yield found
            found = []
        elif depth:
            found.append(token)
        depth += token.token_type is TokenType.L_PAREN


def _parsed(statement: str, tokens: Sequence[Token], after_a_type: Collection[str]) -> ColumnDeclaration:
    outer = list(_outermost(tokens[1:]))
    after = next((it for it in outer if _is_word(it) and it.text.upper().partition(" ")[0] in after_a_type), None)
    of_type = [it for it in tokens[1:] if after is None or it.start < after.start]
    name_end = tokens[0].end + 1
    denied = next((pair for pair in pairwise(outer) if _says_not_null(*pair)), None)
    return ColumnDeclaration(
        statement,
        tokens[0].start,
        of_type[0].start if of_type else name_end,
        of_type[-1].end + 1 if of_type else name_end,
        tokens[-1].end + 1,
        None if denied is None else (denied[0].start, denied[1].end + 1),
    )


def _outermost(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens that stand in no parentheses."""
    depth = 0
    for token in tokens:
        depth -= token.token_type is TokenType.R_PAREN
        if depth == 0:
            yield token
        depth += token.token_type is TokenType.L_PAREN


def _is_word(token: Token) -> bool:
    return token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER)


def _says_not_null(first: Token, second: Token) -> bool:
    return _is_word(first) and _is_word(second) and (first.text.upper(), second.text.upper()) == ("NOT", "NULL")
