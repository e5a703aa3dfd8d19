"""A PostgreSQL Subscriber's end of a comparison, and the statements that correct its rows, for a person to run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from psycopg import sql

from tranrepl.connections import Connection
from tranrepl.errors import ConfigurationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.call_syntax import Argument, Image
from tranrepl.model.commands import Operation
from tranrepl.model.comparison import Checksum, ColumnForm, ComparedEnd, Form
from tranrepl.model.names import TableName
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.compared_table import SnapshotPlace, compared_end, native_hashes
from tranrepl.postgres.comparison_forms import subscriber_column
from tranrepl.postgres.comparison_statements import PostgresSide
from tranrepl.postgres.giving_way import giving_way
from tranrepl.postgres.session import Session, connect, translated_errors
from tranrepl.postgres.shared_snapshot import export_snapshot
from tranrepl.postgres.table_locks import lock, with_all_locks
from tranrepl.subscriber.comparison import ComparableTable, Correction
from tranrepl.subscriber.postgres.destination import find_targets
from tranrepl.subscriber.postgres.procedures import Target, block, equality, settable
from tranrepl.subscriber.subscription import SubscriptionKey

_APPLICATION = "tranrepl validation"


@dataclass(frozen=True, slots=True)
class PostgresComparison:
    tables: tuple[ComparableTable, ...]
    problems: tuple[tuple[RegisteredArticle, ConfigurationError], ...]
    _session: Session
    _place: SnapshotPlace
    _targets: Mapping[int, Target]
    """The target of each article_id."""
    begin: str = "START TRANSACTION"

    def native_hashes(self) -> tuple[object, ...]:
        return native_hashes(self._session)

    def end(self, table: ComparableTable, checksum_by: Checksum, part_bytes: int) -> ComparedEnd:
        article = table.article
        columns = tuple(
            subscriber_column(it, table.types[it.name], form)
            for it, form in zip(article.columns, table.forms, strict=True)
        )
        side = PostgresSide(qualified(article.destination), columns, article.key_positions, checksum_by)
        return compared_end(self._session, article.destination, side, self._place, part_bytes)

    def statement(self, correction: Correction) -> str:
        target = self._targets[correction.article.article_id]
        return correcting_statement(correction, replace(target, article=correction.article))


@contextmanager
def open_comparison(
    connection: Connection, key: SubscriptionKey, articles: Sequence[RegisteredArticle]
) -> Iterator[PostgresComparison]:
    """Look at the tables, and hold a snapshot of them as they are now."""
    with connect(connection, _APPLICATION, autocommit=True) as session:
        where = f"Subscriber {key.subscription}"
        targets: dict[int, Target] = {}
        problems: list[tuple[RegisteredArticle, ConfigurationError]] = []
        for article in articles:
            try:
                targets[article.article_id] = find_targets(session, where, [article])[0]
            except ConfigurationError as error:
                problems.append((article, error))
        destinations = [it.article.destination for it in targets.values()]
        with _exported(connection, destinations, where) as snapshot:
            yield PostgresComparison(
                tuple(_comparable(it) for it in targets.values()),
                tuple(problems),
                session,
                SnapshotPlace(connection, snapshot, where),
                targets,
            )


def _comparable(target: Target) -> ComparableTable:
    types = {column.name: column.type_name for column in target.columns}
    forms = tuple(ColumnForm(Form.NATIVE, types[column.name]) for column in target.article.columns)
    return ComparableTable(target.article, forms, types, tuple(column.name for column in target.table.columns))


@contextmanager
def _exported(connection: Connection, tables: Sequence[TableName], where: str) -> Iterator[str]:
    """Export a snapshot of the Subscriber as it is now, and yield its name; it lives until the end of this context.
    Until then, nobody empties or rewrites the tables, which would hide rows from it.

    Raises TransientError, at the end too, where that gave way to a statement that waited for one of them.
    """
    with connect(connection, _APPLICATION, autocommit=True) as session, translated_errors(where):

        def lock_all() -> None:
            for table in tables:
                lock(session, table, only=False)

        session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        with_all_locks(session, lock_all)
        snapshot = export_snapshot(session, _APPLICATION)
        with giving_way(connection, snapshot, where):
            yield snapshot
        # It fails where the session has not held the tables until now.
        session.execute("COMMIT")


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
