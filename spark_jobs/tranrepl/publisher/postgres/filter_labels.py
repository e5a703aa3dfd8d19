"""Labels of enumerated types in row filters, and in the values that these read, under the names that the catalogue has.

The Publisher evaluates a filter with its catalogue of now, which knows no earlier name of a label.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import sqlglot
from psycopg import sql
from psycopg.pq import DiagnosticField, ExecStatus
from sqlglot import Token, TokenType

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.table_definition import DefinedColumn
from tranrepl.postgres.session import Session
from tranrepl.publisher.label_names import LabelNames, is_array_of, translated

_STRINGS = (TokenType.STRING, TokenType.HEREDOC_STRING, TokenType.NATIONAL_STRING)
_ESCAPED = (TokenType.BYTE_STRING, TokenType.UNICODE_STRING)
_NO_LABEL = "tranrepl: no label"
_READS_LABELS = b"enum_in"
"""The server's function that reads a label, as its errors name it."""
_NUMBERS_OF_A_LAP = 1 << 31
"""Numbers of the catalogue's rows begin anew after twice as many."""

_LABELS = """
SELECT enumtypid::bigint, array_agg(enumlabel::text ORDER BY enumsortorder),
       array_agg(oid::bigint ORDER BY enumsortorder)
  FROM pg_catalog.pg_enum WHERE enumtypid = ANY (%s::oid[]) GROUP BY enumtypid
"""


class UnknownLabelsError(Exception):
    """Nothing tells which labels the names in a filter mean."""


@dataclass(frozen=True, slots=True)
class PresentLabels:
    """The labels of an enumerated type as the catalogue has them, in their order, and the numbers of its rows."""

    labels: tuple[str, ...]
    numbers: tuple[int, ...]

    def names_of(self, labels: Sequence[str]) -> dict[str, str]:
        """Return the present names by those of before. Raises UnknownLabelsError.

        No label is ever dropped, and none changes its place among the others; one that is added has a higher number.
        """
        before = sorted(self.numbers)[: len(labels)]
        kept = [label for label, number in zip(self.labels, self.numbers, strict=True) if number in before]
        added = set(self.labels) - set(kept)
        lap = bool(added) and max(self.numbers) - min(self.numbers) >= _NUMBERS_OF_A_LAP
        if len(kept) != len(labels) or lap or added & set(labels):
            raise UnknownLabelsError
        return dict(zip(labels, kept, strict=True))


def present_labels(session: Session, types: Collection[int]) -> dict[int, PresentLabels]:
    """Return the labels that enumerated types have now, by the types' numbers."""
    found = session.execute(_LABELS, [list(types)]) if types else ()
    return {number: PresentLabels(tuple(labels), tuple(numbers)) for number, labels, numbers in found}


def types_of(columns: Sequence[DefinedColumn]) -> dict[int, tuple[str, ...]]:
    """Return the labels of the enumerated types that columns are made of, by the types' numbers."""
    return {it.oid: it.labels for column in columns for it in column.types or () if it.labels is not None}


def defined_columns(article: RegisteredArticle, positions: Sequence[int]) -> list[DefinedColumn]:
    """Return the columns at these positions as the article's definition has them; none where it has not all of them."""
    known = {} if article.definition is None else article.definition.by_ordinal
    found = [known.get(article.columns[at].ordinal) for at in positions]
    return [it for it in found if it is not None] if all(found) else []


def label_names(
    column: DefinedColumn, at: int, names: Mapping[int, Mapping[str, str]], *, announced: bool
) -> LabelNames | None:
    """Return the names of now by those that the column's values have; None where they are the same. `names` has them by
    the numbers of types. Where renames are not announced, values may have either name already."""
    own = [names[it.oid] for it in column.types or () if it.oid in names]
    now = {label: name for it in own for label, name in it.items() if label != name}
    if not now:
        return None
    present = {name for it in own for name in it.values()}
    return LabelNames(
        at,
        now,
        unclear=frozenset() if announced else frozenset(now.keys() & present),
        open=frozenset(now),
        labels=frozenset({label for it in own for label in it}),
        is_label=any(it.oid == column.type_oid and it.labels is not None for it in column.types or ()),
        is_array=is_array_of(column, {*now, *present}),
    )


def with_present_names(
    session: Session,
    condition: str,
    query: Callable[[str], sql.Composed],
    names: Mapping[int, Mapping[str, str]],
    present: Mapping[int, PresentLabels],
) -> str:
    """Return a filter with the names of now in the place of labels' earlier ones, and else as it was written. `query`
    is what asks the server about a condition. Raises UnknownLabelsError where it does not say what is a label.

    The server tells a label from another text: it refuses what is none, and says where.
    """
    renamed = {number: it for number, it in names.items() if any(label != name for label, name in it.items())}
    pieces = _Pieces.of(condition, renamed)
    if not pieces.candidates:
        return condition
    for at in pieces.candidates:
        pieces.literals[at] = pieces.written_like(at, _NO_LABEL)
    left, found = set(pieces.candidates), dict[int, str]()
    while (refused := _refused(session, query, pieces)) is not None:
        literal = refused.literal
        if literal is None or literal not in left:
            raise UnknownLabelsError
        left.discard(literal)
        pieces.literals[literal] = pieces.given[literal]
        if refused.reads_labels:
            label, found[literal] = _label_there(session, query, pieces, literal, renamed, present)
            pieces.literals[literal] = pieces.written_like(literal, label)
    for at in pieces.candidates:
        pieces.literals[at] = found.get(at, pieces.given[at])
    return pieces.text()


def _label_there(
    session: Session,
    query: Callable[[str], sql.Composed],
    pieces: _Pieces,
    at: int,
    renamed: Mapping[int, Mapping[str, str]],
    present: Mapping[int, PresentLabels],
) -> tuple[str, str]:
    """Return a label that the server takes at this place, and what is to be written there: by the type whose labels it
    takes."""
    found = {
        _renamed_text(pieces.content[at], names): present[number].labels[0]
        for number, names in renamed.items()
        if all(_takes(session, query, pieces, at, label) for label in present[number].labels)
    }
    if len(found) != 1:
        raise UnknownLabelsError
    ((text, label),) = found.items()
    return label, sql.Literal(text).as_string(None)


def _takes(session: Session, query: Callable[[str], sql.Composed], pieces: _Pieces, at: int, label: str) -> bool:
    before = pieces.literals[at]
    pieces.literals[at] = pieces.written_like(at, label)
    try:
        refused = _refused(session, query, pieces)
        # The server looks at what comes earlier first.
        return refused is None or refused.literal != at
    finally:
        pieces.literals[at] = before


def _renamed_text(text: str, names: Mapping[str, str]) -> str:
    """Return a label, or an array of labels, with the names of now."""
    now = {label: name for label, name in names.items() if label != name}
    is_array = text.startswith("{") and text.endswith("}") and text not in now
    given = LabelNames(0, now, frozenset(), frozenset(), frozenset(names), is_label=not is_array, is_array=is_array)
    renamed, _ = translated(pa.array([text]), given)
    return str(renamed[0].as_py())


@dataclass(frozen=True, slots=True)
class _Refused:
    """What a server refuses in a condition: one of its literals, or None for anything else."""

    literal: int | None
    reads_labels: bool


def _refused(session: Session, query: Callable[[str], sql.Composed], pieces: _Pieces) -> _Refused | None:
    condition = pieces.text()
    text = query(condition).as_string(session)
    prepared = session.pgconn.prepare(b"", text.encode())
    if prepared.status == ExecStatus.COMMAND_OK:
        return None
    position = int(prepared.error_field(DiagnosticField.STATEMENT_POSITION) or 0)
    # Counted from one; the condition stands in parentheses.
    place = position - 1 - (text.index(f"({condition})") + 1)
    reads_labels = prepared.error_field(DiagnosticField.SOURCE_FUNCTION) == _READS_LABELS
    return _Refused(pieces.literal_at(place), reads_labels)


@dataclass(slots=True)
class _Pieces:
    """A condition, cut at its literals."""

    between: list[str]
    """What stands before each literal, and after the last one."""
    given: list[str]
    """Each literal as it was written."""
    content: list[str]
    literals: list[str] = field(init=False)
    candidates: list[int] = field(default_factory=list)
    """Literals that may hold a label's earlier name."""

    def __post_init__(self) -> None:
        self.literals = list(self.given)

    @classmethod
    def of(cls, condition: str, renamed: Mapping[int, Mapping[str, str]]) -> _Pieces:
        pieces, end = cls([], [], []), 0
        for token in sqlglot.tokenize(condition, read="postgres"):
            if token.token_type not in (*_STRINGS, *_ESCAPED):
                continue
            literal = condition[token.start : token.end + 1]
            pieces.between.append(condition[end : token.start])
            pieces.given.append(literal)
            pieces.literals.append(literal)
            pieces.content.append(_content(token, literal))
            end = token.end + 1
            if any(_renamed_text(pieces.content[-1], it) != pieces.content[-1] for it in renamed.values()):
                pieces.candidates.append(len(pieces.given) - 1)
        pieces.between.append(condition[end:])
        return pieces

    def text(self) -> str:
        parts = [part for pair in zip(self.between, self.literals, strict=False) for part in pair]
        return "".join([*parts, self.between[-1]])

    def written_like(self, at: int, label: str) -> str:
        """Return a literal of a label where an array of labels is written as an array of it."""
        text = self.content[at]
        quoted = label.replace("\\", "\\\\").replace('"', '\\"')
        is_array = text.startswith("{") and text.endswith("}")
        return sql.Literal(f'{{"{quoted}"}}' if is_array else label).as_string(None)

    def literal_at(self, place: int) -> int | None:
        """Return which literal begins at this place of the text."""
        return next((at for at, start in enumerate(self._starts()) if start == place), None)

    def _starts(self) -> Iterator[int]:
        end = 0
        for between, literal in zip(self.between, self.literals, strict=False):
            # What sets a literal with backslashes apart begins with a space.
            yield end + len(between) + len(literal) - len(literal.lstrip())
            end += len(between) + len(literal)


def _content(token: Token, literal: str) -> str:
    """Return what a literal says; one with an escape sequence, as it is written."""
    return literal if token.token_type in _ESCAPED and "\\" in literal else str(token.text)
