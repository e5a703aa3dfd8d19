"""What to do where a Subscriber's table lacks a published column: rows that are there are to get its values too."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.catalogue import ColumnDescription, TableDescription


class ColumnTexts(Protocol):
    """Statements of a Subscriber's database, as text."""

    def add(self, column: str) -> str: ...

    def rename(self, column: str, new_name: str) -> str: ...


def as_registered(known: RegisteredArticle | None, source: TableDescription) -> RegisteredArticle | None:
    """Return the article that is delivered; None where nothing is, or it was one of another table."""
    return known if known is not None and known.source_object_id == source.object_id else None


def missing_column_remedy(
    known: RegisteredArticle | None,
    column: ColumnDescription,
    there: Collection[str],
    texts: ColumnTexts,
    values_again: str,
) -> str:
    """Return what to do before the next setup. `known` is the article as it is delivered, `there` are the table's
    columns; `values_again`: the command that brings values to rows that lack them."""
    add, or_else = texts.add(column.name), "or leave the column out of the article"
    before = {it.ordinal: it.name for it in known.columns} if known is not None else {}
    if known is None:
        return f"{add} {or_else}"
    if column.ordinal not in before:
        return f"{add} then `tranrepl setup FILE`, which has its values copied or compared; {or_else}"
    name = before[column.ordinal]
    if name != column.name and name in there:
        return (
            "`tranrepl run FILE` delivers what was committed before, even where its log reader fails; then "
            f"{texts.rename(name, column.name)} then `tranrepl setup FILE`"
        )
    return f"{add} then `tranrepl setup FILE`, then {values_again} gives rows that are there its values"


def lost_columns_remedy(missing: Sequence[str], others: Sequence[str], texts: ColumnTexts, values_again: str) -> str:
    """Return what to do where a delivery needs columns that a table lacks; `others` are columns it has that are not
    published under these names."""
    add = f"{' '.join(map(texts.add, missing))} then `tranrepl run FILE`, then {values_again} gives rows that are there"
    add = f"{add} {'its' if len(missing) == 1 else 'their'} values"
    if not others:
        return add
    renamed = "where it was renamed there, give it its name again until all is delivered"
    if len(missing) == len(others) == 1:
        return f"{renamed}: {texts.rename(others[0], missing[0])} else {add}"
    return f"{renamed}; else {add}"


def values_again(subscription: str, article: str, *, comparison: bool) -> str:
    """Return the command that gives rows of a Subscriber the Publisher's values; `comparison`: they can be compared
    and corrected."""
    if comparison:
        return f"`tranrepl validate FILE -s {subscription} --article {article} --repair`"
    return f"`tranrepl reinitialize FILE -s {subscription} --article {article}`"
