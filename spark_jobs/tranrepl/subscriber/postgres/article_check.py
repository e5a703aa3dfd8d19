"""What keeps a PostgreSQL Subscriber from taking an article."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import types
from sqlalchemy.types import TypeEngine

from tranrepl.errors import ConfigurationError, CustomProcedureError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.catalogue import ColumnDescription, TableDescription
from tranrepl.model.source_types import Family, source_type
from tranrepl.model.table_definition import Generation
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.settings.publication import Article
from tranrepl.subscriber.base.narrower_columns import narrower_warnings
from tranrepl.subscriber.missing_columns import as_registered, missing_column_remedy, values_again
from tranrepl.subscriber.postgres.destination import PostgresColumnTexts, find_destination, intended_target
from tranrepl.subscriber.postgres.ownership import type_problems
from tranrepl.subscriber.postgres.partition_setup import missing_partitions
from tranrepl.subscriber.postgres.procedure_setup import accepts_call
from tranrepl.subscriber.postgres.procedures import custom_procedures
from tranrepl.subscriber.postgres.users_code import unguarded_code
from tranrepl.subscriber.procedure_names import PREFIXES
from tranrepl.subscriber.subscription import SubscriptionKey
from tranrepl.subscriber.value_conversion import PLAIN_TYPES, ColumnType

_MOMENTS = (Family.TIME, Family.TIMESTAMP, Family.TIMESTAMP_WITH_ZONE)
_FRACTION_DIGITS = re.compile(r"time\w*\((\d)")
_MOST_FRACTION_DIGITS = 6


def article_problems(
    session: Session, key: SubscriptionKey, article: Article, source: TableDescription, known: RegisteredArticle | None
) -> Iterator[ConfigurationError]:
    """Yield what keeps this Subscriber from taking the article, each with its way out. `known` is the article as it is
    delivered; None where nothing is."""
    where = f"Subscriber {key.subscription}"
    columns = source.published(article.columns)
    table = find_destination(session, where, article.destination_table)
    if table is None:
        yield from _type_problems(session, where, article, columns)
        return
    if table.kind not in ("table", "partitioned table"):
        yield ConfigurationError(
            f"article {article.source}: {article.destination_table} at {where} is a {table.kind}",
            remedy="allowed: a table, or nothing of that name: `tranrepl setup FILE` then creates it",
        )
        return
    delivered = as_registered(known, source)
    for column in columns:
        yield from _column_problems(key, article, delivered, table, column)


def _type_problems(
    session: Session, where: str, article: Article, columns: Sequence[ColumnDescription]
) -> Iterator[ConfigurationError]:
    """Yield types that a table made by `tranrepl setup` would need, and that are missing or run the code of others."""
    for column in columns:
        with translated_errors(where):
            found = session.execute("SELECT to_regtype(%s)", [column.type_name]).fetchone()
        if found == (None,):
            yield ConfigurationError(
                f"article {article.source}: {where}: column {column.name!r}: type {column.type_name} does not exist",
                remedy="create the type there as it is at the Publisher, or leave the column out of the article",
            )
        with translated_errors(where):
            yield from type_problems(session, f"article {article.source}: {where}", column.name, column.type_name)


def _column_problems(
    key: SubscriptionKey,
    article: Article,
    known: RegisteredArticle | None,
    table: TableDescription,
    column: ColumnDescription,
) -> Iterator[ConfigurationError]:
    found, where = table.column(column.name), f"Subscriber {key.subscription}"
    if found is None:
        texts = PostgresColumnTexts(table.name, {column.name: column.type_name})
        repaired = known is None or known.not_repaired is None
        again = values_again(key.subscription, shlex.quote(str(article.source)), comparison=repaired)
        yield ConfigurationError(
            f"article {article.source}: {where}: table {table.name} has no column {column.name!r}",
            remedy=missing_column_remedy(known, column, [it.name for it in table.columns], texts, again),
        )
    elif found.generation is not Generation.NONE:
        yield ConfigurationError(
            f"article {article.source}: {where}: column {column.name!r} of {table.name} is generated",
            remedy="a published column must be an ordinary column at the Subscriber",
        )


def article_warnings(session: Session, where: str, article: Article, source: TableDescription) -> Iterator[str]:
    """Yield what of an article without problems may not fit into the table that is there."""
    table = find_destination(session, where, article.destination_table)
    at = f"article {article.source}: {where}: table {article.destination_table}"
    for it in missing_partitions(session, article, source):
        made = it.statement.as_string(session)
        yield f"{at} has no partition {it.there}: `tranrepl setup FILE` makes it, by {made}"
    pairs = [(it, table.column(it.name)) for it in source.published(article.columns)] if table is not None else []
    for column, found in pairs:
        if found is None:
            continue
        for warning in narrower_warnings(column, _described(column), _described(found), not_null=found.not_null):
            yield f"{at}: {warning}"
    with translated_errors(where):
        yield from unguarded_code(session, where, article)


def _described(column: ColumnDescription) -> ColumnType | None:
    """Return the column's type as SQLAlchemy has it; None where nothing is said of it."""
    declared = source_type(column.type_name)
    if declared.family is Family.OTHER:
        # A domain; its base comes without the length that it may have.
        declared = source_type(column.base_type_name)
        if declared.family in (Family.NUMERIC, Family.TEXT, Family.CHARACTER, *_MOMENTS):
            return None
    digits = _FRACTION_DIGITS.search(declared.spelling)
    match declared.family:
        case Family.NUMERIC:
            made: TypeEngine[Any] | None = types.Numeric(declared.precision, declared.scale)
        case Family.TEXT | Family.CHARACTER:
            made = types.String(declared.length)
        case Family.BYTES:
            made = types.LargeBinary()
        case family:
            made = PLAIN_TYPES.get(family)
    if made is None:
        return None
    return ColumnType(
        made,
        declared.spelling,
        fraction_digits=int(digits[1]) if digits else _MOST_FRACTION_DIGITS,
        single_precision=declared.family is Family.REAL,
    )


def custom_problems(
    session: Session, where: str, article: RegisteredArticle, source: TableDescription
) -> Iterator[CustomProcedureError]:
    """Yield custom procedures that are missing or declared otherwise than they are called."""
    if not any(article.propagation(it).procedure for it in PREFIXES):
        return
    target = intended_target(session, where, article, source)
    for custom in custom_procedures(target):
        if not accepts_call(session, custom):
            yield CustomProcedureError(
                f"article {target.article.source}: {where}: there is no procedure that takes the call of "
                f"{custom.identifier.as_string(None)}",
                remedy=f"declare it as PROCEDURE {custom.signature().as_string(None)}; "
                "`tranrepl script FILE --custom` prints a skeleton",
                article=str(target.article.source),
            )
