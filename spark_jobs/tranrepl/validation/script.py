"""The statements that would correct a Subscriber's rows, for a person to look at and run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from psycopg import sql
from pymysql.converters import escape_item

from tranrepl.distribution.opening import OpenDistribution
from tranrepl.errors import ConfigurationError
from tranrepl.jobs.requests import ValidationRequest
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.call_syntax import Argument, Image
from tranrepl.model.commands import Operation, encode_changed
from tranrepl.postgres.catalogue import qualified
from tranrepl.subscriber.batching.command_rows import Command
from tranrepl.subscriber.dialects import dialect_of
from tranrepl.subscriber.generic.dialect import SqlDialect
from tranrepl.subscriber.generic.statements import parameters, shape_of, statement
from tranrepl.subscriber.generic.target import target
from tranrepl.subscriber.postgres.procedures import Target, block, settable
from tranrepl.subscriber.postgres.subscriber import PostgresSubscriber
from tranrepl.validation.repair import Correction, by_statements
from tranrepl.validation.sync_point import HeldSyncPoint

Write = Callable[[Correction], str]


def write_script(
    request: ValidationRequest,
    opened: OpenDistribution,
    point: HeldSyncPoint,
    pieces: Iterable[Sequence[Correction]],
) -> None:
    """Append to the request's file, which only its owner can read: it has values of rows.

    Raises ConfigurationError where it cannot be written.
    """
    path = request.repair_script
    if path is None:
        return
    try:
        path.touch(mode=0o600)
        with path.open("a", encoding="utf-8") as file, _writer(opened) as write:
            file.write(
                f"-- Subscriber {request.subscription} of publication {request.publication.publication}, compared at "
                f"0x{point.watermark.hex()}.\n"
                "-- Run it while nothing is delivered; it does not know of later changes.\n"
                "START TRANSACTION;\n"
            )
            for some in pieces:
                file.writelines(f"{write(it)};\n" for it in some)
            file.write("COMMIT;\n")
    except OSError as error:
        raise ConfigurationError(f"--repair-script: {path} cannot be written: {error.strerror}") from error


@contextmanager
def _writer(opened: OpenDistribution) -> Iterator[Write]:
    dialect = dialect_of(opened.connection)
    subscriber = opened.subscriber
    if isinstance(subscriber, PostgresSubscriber):
        targets: dict[int, Target] = {}

        def write_postgres(correction: Correction) -> str:
            article = correction.article
            if article.article_id not in targets:
                targets[article.article_id] = subscriber.target(by_statements(article))
            return postgres_statement(correction, targets[article.article_id])

        yield write_postgres
    elif isinstance(dialect, SqlDialect):
        with dialect.reading(opened.connection) as (session, database):

            def write(correction: Correction) -> str:
                article = correction.article
                found = target(session, database, by_statements(article), opened.subscriber.where)
                command = _command(correction)
                made = statement(database, found, shape_of(command, found))
                return _with_values(made.executable, parameters(command, found, made.passed), session)

            yield write


def postgres_statement(correction: Correction, target: Target) -> str:
    """Write a correction as a statement, with values as texts that the columns' types read."""
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
            assigned = sql.SQL(", ").join(_equals(name, value) for name, value in values)
            made = sql.SQL("UPDATE {} SET {} WHERE {}").format(table, assigned, _key(article, correction))
        case _:
            made = sql.SQL("DELETE FROM {} WHERE {}").format(table, _key(article, correction))
    return made.as_string(None)


def _value(correction: Correction, argument: Argument) -> sql.Literal:
    if argument.position is None:
        return sql.Literal(f"\\x{(_mask(correction) or b'').hex()}")
    image = correction.before if argument.image is Image.BEFORE else correction.after
    return sql.Literal((image or [])[argument.position])


def _key(article: RegisteredArticle, correction: Correction) -> sql.Composed:
    before = correction.before or []
    return sql.SQL(" AND ").join(_equals(article.columns[at].name, before[at]) for at in article.key_positions)


def _equals(name: str, value: str | None) -> sql.Composed:
    return sql.SQL("{} = {}").format(sql.Identifier(name), sql.Literal(value))


def _command(correction: Correction) -> Command:
    return Command(
        b"",
        0,
        correction.article.article_id,
        correction.operation,
        correction.before or [],
        correction.after or [],
        _mask(correction),
    )


def _mask(correction: Correction) -> bytes | None:
    if correction.changed is None:
        return None
    return encode_changed([at + 1 for at in correction.changed], len(correction.article.columns))


def _with_values(executable: sa.Executable, values: dict[str, Any], session: sa.Connection) -> str:
    compiled: Any = executable.compile(dialect=session.dialect)  # type: ignore[attr-defined]
    bound = compiled.construct_params(values)
    processors = compiled._bind_processors
    escaped = {
        name: escape_item(processors[name](value) if name in processors else value, "utf8mb4")
        for name, value in bound.items()
    }
    if compiled.positional:
        return str(compiled) % tuple(escaped[name] for name in compiled.positiontup)
    return str(compiled) % escaped
