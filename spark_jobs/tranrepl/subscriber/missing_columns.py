"""Errors about tables and columns that a Subscriber lacks, and what to do: rows that are there are to get the
Publisher's values too."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from tranrepl.errors import ConfigurationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.catalogue import ColumnDescription, TableDescription
from tranrepl.remedies import RUN_SETUP
from tranrepl.settings.publication import Article


@dataclass(frozen=True, slots=True)
class ColumnTexts:
    """Statements of a Subscriber's database, for people to paste."""

    added: Mapping[str, str]
    """What adds each column that may be missing."""
    rename: Callable[[str, str], str]


def as_registered(known: RegisteredArticle | None, source: TableDescription) -> RegisteredArticle | None:
    """Return the article that is delivered; None where nothing is, or it was one of another table."""
    return known if known is not None and known.source_object_id == source.object_id else None


def no_table(where: str, article: RegisteredArticle) -> ConfigurationError:
    return ConfigurationError(
        f"{where}: table {article.destination} does not exist", remedy=RUN_SETUP, article=str(article.source)
    )


def no_column(
    subscription: str,
    article: Article,
    known: RegisteredArticle | None,
    column: ColumnDescription,
    there: Collection[str],
    texts: ColumnTexts,
    *,
    comparison: bool,
) -> ConfigurationError:
    """Return the error for a table that lacks a published column, with what to do before the next setup. `known` is the
    article as it is delivered, `there` are the table's columns; `comparison`: rows of this kind of database can be
    compared."""
    add, or_else = texts.added[column.name], "or leave the column out of the article"
    before = {it.ordinal: it.name for it in known.columns} if known is not None else {}
    name = before.get(column.ordinal)
    if known is None:
        remedy = f"{add} {or_else}"
    elif name is None:
        remedy = f"{add} then `tranrepl setup FILE`, which has its values copied or compared; {or_else}"
    elif name != column.name and name in there:
        remedy = (
            "`tranrepl run FILE` delivers what was committed before, even where its log reader fails; then "
            f"{texts.rename(name, column.name)} then `tranrepl setup FILE`"
        )
    else:
        again = _values_again(subscription, shlex.quote(str(article.source)), known, comparison=comparison)
        remedy = f"{add} then `tranrepl setup FILE`, then {again} gives rows that are there its values"
    return ConfigurationError(
        f"article {article.source}: Subscriber {subscription}: table {article.destination_table} has no column "
        f"{column.name!r}",
        remedy=remedy,
    )


def lost_columns(
    where: str,
    article: RegisteredArticle,
    missing: Sequence[str],
    others: Sequence[str],
    texts: ColumnTexts,
    *,
    comparison: bool,
) -> ConfigurationError:
    """Return the error for a delivery that needs columns which a table lacks; `others` are columns it has that are not
    published under these names."""
    again = _values_again("NAME", "ARTICLE", article, comparison=comparison)
    added = " ".join(texts.added[it] for it in missing)
    add = f"{added} then `tranrepl run FILE`, then {again} gives rows that are there"
    add = f"{add} {'its' if len(missing) == 1 else 'their'} values"
    renamed = "where it was renamed there, give it its name again until all is delivered"
    if len(missing) == len(others) == 1:
        remedy = f"{renamed}: {texts.rename(others[0], missing[0])} else {add}"
    else:
        remedy = f"{renamed}; else {add}" if others else add
    return ConfigurationError(
        f"{where}: table {article.destination} has no column {', '.join(missing)}",
        remedy=remedy,
        article=str(article.source),
    )


def _values_again(subscription: str, article: str, known: RegisteredArticle, *, comparison: bool) -> str:
    """Return the command that gives rows of a Subscriber the Publisher's values."""
    if comparison and known.not_repaired is None:
        return f"`tranrepl validate FILE -s {subscription} --article {article} --repair`"
    return f"`tranrepl reinitialize FILE -s {subscription} --article {article}`"
