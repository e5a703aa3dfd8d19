"""A row filter, written in PostgreSQL's SQL, in another database's: it says which rows of a table an article owns."""

from __future__ import annotations

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tranrepl.errors import ConfigurationError


def translated_filter(text: str, sql_name: str, table: str) -> str:
    """Translate a row filter for `sqlalchemy.text`. `sql_name` is sqlglot's name of the database's SQL, empty for the
    standard's.

    Raises ConfigurationError where the database has no words for the condition.
    """
    try:
        tree = sqlglot.parse_one(text, dialect="postgres")
        if tree.find(exp.Div):
            # PostgreSQL divides integers without a remainder, others with one.
            raise SqlglotError("a division gives another result there")
        if tree.find(exp.Operator):
            raise SqlglotError("an operator with a schema is PostgreSQL's")
        if isinstance(tree.unnest(), (exp.Literal, exp.Null)):
            raise SqlglotError("a constant is a condition in PostgreSQL only; write true or false")
        for column in tree.find_all(exp.Column):
            column.replace(exp.column(_name(column), quoted=True))
        translated = tree.sql(dialect=sql_name, unsupported_level=sqlglot.ErrorLevel.RAISE)
    except SqlglotError as error:
        raise ConfigurationError(
            f"filter of {table}: {text!r} cannot be translated to the Subscriber's SQL: {str(error).splitlines()[0]}",
            remedy="truncate: ignore or error, or another filter",
        ) from error
    return translated.replace(":", "\\:")


def columns_read(text: str) -> frozenset[str]:
    """Return the columns that a row filter reads, as the Publisher's catalogue spells them."""
    return frozenset(map(_name, sqlglot.parse_one(text, dialect="postgres").find_all(exp.Column)))


def _name(column: exp.Column) -> str:
    """Return the name that is meant: PostgreSQL folds one without quotes to lower case."""
    return str(column.this.name if column.this.args.get("quoted") else column.this.name.lower())
