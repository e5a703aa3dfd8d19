"""Correcting the rows that differ: as commands of the row layout, applied like any delivery or written as statements.

Rows that differed may have been changed by deliveries since. They are compared once more at a new sync point, where
delivery is held until the corrections are committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice

import pyarrow as pa

from tranrepl.errors import ConfigurationError
from tranrepl.jobs.requests import ValidationRequest
from tranrepl.jobs.validation_report import MOST_ROWS, ArticleValidation, Difference
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.command_rows import ROW_LAYOUT
from tranrepl.model.commands import Operation
from tranrepl.model.row_images import image_lines
from tranrepl.publisher.snapshot import SnapshotSession
from tranrepl.subscriber.comparison import Correction, SubscriberComparison, Values, by_statements
from tranrepl.subscriber.shared_tables import Claim
from tranrepl.validation.differences import Found, FoundRow
from tranrepl.validation.sync_point import HeldSyncPoint

_ROWS_AT_ONCE = 100
"""Rows whose values are in memory at the same time."""


def not_repairable(article: RegisteredArticle, others: Iterable[Claim], *, schemas: bool) -> str | None:
    """Say why the article's rows are not to be corrected, where they are not meant to be the Publisher's, or not all;
    None where they are. `others`: what other publications deliver to the Subscriber."""
    shared = next((it for it in others if it.is_on(article.destination, schemas=schemas)), None)
    if shared is not None:
        return f"publication {shared.publication} delivers rows of {shared.article} to the same table"
    return article.not_repaired


def refuse_too_many(report: ArticleValidation) -> None:
    """Raise ConfigurationError where not all rows that differ are known by their keys."""
    if report.differences > MOST_ROWS:
        raise ConfigurationError(
            f"{report.summary()}: a repair corrects at most {MOST_ROWS} rows of an article",
            remedy="`tranrepl reinitialize FILE -s NAME --article ARTICLE` copies its rows again",
            article=report.article,
        )


def corrections(session: SnapshotSession, found: Sequence[Found]) -> Iterator[list[Correction]]:
    """Yield what makes the Subscriber's rows those of the Publisher's snapshot `session`: deletes, children's tables
    first, then updates and inserts. A value of another unique key moves as a DELETE and an INSERT, as in a deferred
    update."""
    for it in reversed(found):
        article = it.compared.article
        for some in _pieces([row for row in _once(it.rows) if _is_deleted(article, row)]):
            yield [Correction(article, Operation.DELETE, _key_values(article, row), None) for row in some]
    for it in found:
        article = it.compared.article
        for some in _pieces([row for row in _once(it.rows) if row.repeated or not _is_extra(row)]):
            by_key = session.rows_of_keys(article, [[*row.row.key.values()] for row in some])
            yield [_written(article, row, by_key[tuple(row.row.key.values())]) for row in some]


def _once(rows: Sequence[FoundRow]) -> list[FoundRow]:
    """Return one row for each key; of repeated rows all are deleted, and one is inserted."""
    by_key: dict[tuple[str | None, ...], FoundRow] = {}
    for row in sorted(rows, key=lambda row: row.repeated):
        by_key[tuple(row.row.key.values())] = row
    return list(by_key.values())


def _is_extra(found: FoundRow) -> bool:
    return found.row.difference is Difference.EXTRA


def _is_deleted(article: RegisteredArticle, found: FoundRow) -> bool:
    return _is_extra(found) or (found.row.difference is Difference.DIFFERENT and _moves_unique_value(article, found))


def _moves_unique_value(article: RegisteredArticle, found: FoundRow) -> bool:
    unique = {article.columns[at].name for at in article.unique_positions}
    return not unique.isdisjoint(found.row.columns)


def _written(article: RegisteredArticle, found: FoundRow, values: Values) -> Correction:
    if found.repeated or found.row.difference is Difference.MISSING or _moves_unique_value(article, found):
        return Correction(article, Operation.INSERT, None, values)
    changed = tuple(at for at, column in enumerate(article.columns) if column.name in found.row.columns)
    after = [value if at in changed else None for at, value in enumerate(values)]
    return Correction(article, Operation.UPDATE, _key_values(article, found), after, changed)


def _key_values(article: RegisteredArticle, found: FoundRow) -> Values:
    return [found.row.key.get(column.name) for column in article.columns]


def _pieces(rows: Sequence[FoundRow]) -> Iterator[list[FoundRow]]:
    rest = iter(rows)
    while some := list(islice(rest, _ROWS_AT_ONCE)):
        yield some


def command_table(xact_seqno: bytes, first_command_id: int, some: Sequence[Correction]) -> pa.Table:
    """Return corrections as commands in the row layout."""
    count = len(some)
    columns = [
        pa.array([xact_seqno] * count, pa.binary()),
        pa.array(range(first_command_id, first_command_id + count), pa.int64()),
        pa.array([datetime.now(UTC)] * count, pa.timestamp("us", tz="UTC")),
        pa.array([it.article.article_id for it in some], pa.int32()),
        pa.array([int(it.operation) for it in some], pa.int8()),
        image_lines([it.before for it in some]),
        image_lines([it.after for it in some]),
        pa.array([it.mask for it in some], pa.binary()),
    ]
    return pa.Table.from_arrays(columns, schema=ROW_LAYOUT)


def write_script(
    request: ValidationRequest,
    subscriber: SubscriberComparison,
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
        with path.open("a", encoding="utf-8") as file:
            file.write(
                f"-- Subscriber {request.subscription} of publication {request.publication.publication}, compared at "
                f"0x{point.watermark.hex()}.\n"
                "-- Run it while nothing is delivered; it does not know of later changes.\n"
                f"{subscriber.begin};\n"
            )
            for some in pieces:
                chosen = (replace(it, article=by_statements(it.article)) for it in some)
                file.writelines(f"{subscriber.statement(it)};\n" for it in chosen)
            file.write("COMMIT;\n")
    except OSError as error:
        raise ConfigurationError(f"--repair-script: {path} cannot be written: {error.strerror}") from error
