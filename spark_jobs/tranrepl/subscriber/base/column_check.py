"""Whether a column of a table that is there can take what is published, and whether it may not."""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa

from tranrepl.errors import ConfigurationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.catalogue import ColumnDescription
from tranrepl.model.commands import Method, Propagation
from tranrepl.model.source_types import Family, source_type
from tranrepl.settings.publication import Article
from tranrepl.subscriber.base.catalogue import Destination
from tranrepl.subscriber.base.database import SqlDatabase
from tranrepl.subscriber.base.destination import (
    column_texts,
    created_type,
)
from tranrepl.subscriber.base.narrower_columns import narrower_warnings
from tranrepl.subscriber.missing_columns import no_column
from tranrepl.subscriber.subscription import SubscriptionKey

_TEXTS = (Family.TEXT, Family.CHARACTER, Family.OTHER)


def column_problems(
    key: SubscriptionKey,
    article: Article,
    known: RegisteredArticle | None,
    database: SqlDatabase,
    found: Destination,
    column: ColumnDescription,
) -> Iterator[ConfigurationError]:
    """Yield what keeps the Subscriber's column from taking the published one, with its remedy. `known` is the article
    as it is delivered; None where nothing is."""
    at = f"article {article.source}: Subscriber {key.subscription}"
    sets_values = any(map(_sets_values, (article.ins_cmd, article.upd_cmd)))
    if column.name not in found.columns:
        texts = column_texts(database, article.destination_table, {column.name: created_type(database, column)})
        able, there = database.capabilities, list(found.columns)
        yield no_column(key.subscription, article, known, column, there, texts, comparison=able.comparison)
    elif sets_values and (refused := database.refused_column(found.columns[column.name], column)):
        yield ConfigurationError(
            f"{at}: column {column.name!r} of {article.destination_table} {refused}",
            remedy="give it another type, leave it out of the article, or let custom procedures apply the changes",
        )
    elif not found.settable(column.name):
        yield ConfigurationError(
            f"{at}: column {column.name!r} of {article.destination_table} is generated",
            remedy="a published column must be an ordinary column at the Subscriber",
        )
    elif sets_values and found.is_identity(column.name) and not database.inserts_identities:
        yield ConfigurationError(
            f"{at}: column {column.name!r} of {article.destination_table} is an identity, to which neither INSERT nor "
            "UPDATE may give the Publisher's value",
            remedy="a published column must be an ordinary column at the Subscriber; or let custom procedures "
            "apply both",
        )


def column_warnings(
    at: str, database: SqlDatabase, dialect: sa.Dialect, found: Destination, column: ColumnDescription
) -> Iterator[str]:
    """Yield a warning where a column holds less than the one that setup would create."""
    there = found.columns.get(column.name)
    if there is None:
        return
    created = described = None
    if database.holds_what_is_declared:
        created = database.described_type(created_type(database, column), dialect)
        described = database.described_type(there["type"], dialect)
    for it in narrower_warnings(column, created, described, not_null=not there["nullable"]):
        yield f"{at}: {it}"
    is_text_key = column.key_ordinal is not None and source_type(column.type_name).family in _TEXTS
    taken_for_one = database.key_warning(there["type"]) if is_text_key else None
    if taken_for_one is not None:
        yield f"{at}: key column {column.name!r} {taken_for_one}"


def _sets_values(propagation: Propagation) -> bool:
    """Return whether an INSERT or UPDATE statement of ours sets the values."""
    return propagation.method is not Method.NONE and propagation.procedure is None
