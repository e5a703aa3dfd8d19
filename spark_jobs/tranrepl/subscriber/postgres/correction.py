"""The statement that corrects a row of a PostgreSQL Subscriber, for a person to run."""

from __future__ import annotations

from psycopg import sql

from tranrepl.model.call_syntax import Argument, Image
from tranrepl.model.commands import Operation
from tranrepl.postgres.catalogue import qualified
from tranrepl.subscriber.comparison import Correction
from tranrepl.subscriber.postgres.procedures import Target, block, equality, settable


def correcting_statement(correction: Correction, target: Target) -> str:
    """Return it with its values as texts, which the columns' types read."""
    article = correction.article
    table = qualified(article.destination)
    match correction.operation:
        case Operation.INSERT:
            # Which means nothing where no column is GENERATED ALWAYS AS IDENTITY.
            made = sql.SQL("INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE VALUES ({})").format(
                table,
                sql.SQL(", ").join(sql.Identifier(column.name) for column in article.columns),
                sql.SQL(", ").join(map(sql.Literal, correction.after or ())),
            )
        case Operation.UPDATE if not set(settable(target)).issuperset(correction.changed or ()):
            made = block(target, Operation.UPDATE, lambda argument: _value(correction, argument))
        case Operation.UPDATE:
            values = [(article.columns[at].name, (correction.after or [])[at]) for at in correction.changed or ()]
            assigned = sql.SQL(", ").join(
                sql.SQL("{} = {}").format(sql.Identifier(name), sql.Literal(value)) for name, value in values
            )
            made = sql.SQL("UPDATE {} SET {} WHERE {}").format(table, assigned, _key(target, correction))
        case _:
            made = sql.SQL("DELETE FROM {} WHERE {}").format(table, _key(target, correction))
    return made.as_string(None)


def _value(correction: Correction, argument: Argument) -> sql.Literal:
    if argument.position is None:
        return sql.Literal(f"\\x{(correction.mask or b'').hex()}")
    image = correction.before if argument.image is Image.BEFORE else correction.after
    return sql.Literal((image or [])[argument.position])


def _key(target: Target, correction: Correction) -> sql.Composed:
    before, columns = correction.before or [], target.columns
    return sql.SQL(" AND ").join(
        sql.SQL("{} {} {}").format(sql.Identifier(columns[at].name), equality(columns[at]), sql.Literal(before[at]))
        for at in target.article.key_positions
    )
