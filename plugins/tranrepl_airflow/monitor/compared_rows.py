"""The row of a failing command at the Publisher and at the Subscriber, as it is now."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from tranrepl.admin.command_pages import CommandPlace, CommandRow, StoredCommands
from tranrepl.admin.status.server_answers import PendingAnswer, error_line
from tranrepl.errors import ReplicationError
from tranrepl.subscriber.command_text import key_text
from tranrepl.topology import Topology
from tranrepl_airflow.job_connections import resolve_connections
from tranrepl_airflow.monitor.errors import ShownError
from tranrepl_airflow.monitor.publications import MonitoredPublication
from tranrepl_airflow.monitor.queries import STORE, query_store

log = logging.getLogger(__name__)
Answer = TypeVar("Answer")

_LONGEST_VALUE = 500
"""Characters that are shown of a value."""
_PATIENCE_SECONDS = 3.0
_MOST_ERRORS = 3
"""A page shows no rows of further errors: each asks both ends."""
_APPLICATION = "tranrepl monitor"
Rows = Sequence[Sequence[str | None]]


@dataclass(frozen=True, slots=True)
class RowAtEnd:
    where: str
    cells: Sequence[str | None] | None
    """Values by published column; None where there is no such row, or the end gives no answer."""
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class ComparedRow:
    article: str
    key: str
    columns: Sequence[str]
    ends: Sequence[RowAtEnd]

    @property
    def found(self) -> bool:
        """Whether an end has the row."""
        return any(it.cells is not None for it in self.ends)


def compared_rows(publication: MonitoredPublication, errors: Sequence[ShownError]) -> Mapping[int, ComparedRow | str]:
    """Return by error, the first few, the row that the failing command is of, at both ends; a line where nobody gives
    an answer. Commands of no single row are left out. For readers who may see values of rows."""
    asked = {
        it.id: PendingAnswer(STORE, partial(_row, publication, it), 2 * _PATIENCE_SECONDS)
        for it in errors[:_MOST_ERRORS]
    }
    found = {number: _answer(STORE, it) for number, it in asked.items()}
    return {number: row for number, row in found.items() if row is not None}


def _answer(where: str, pending: PendingAnswer[Answer]) -> Answer | str:
    """Return the answer; a line where there is none, whatever went wrong: the page is there for errors."""
    try:
        answer = pending.answer()
    except Exception as error:
        log.exception("%s: the row of a failing command is not shown", where)
        return f"{where}: {type(error).__name__}"
    return error_line(where, answer) if isinstance(answer, ReplicationError) else answer


def _row(publication: MonitoredPublication, error: ShownError) -> ComparedRow | str | None:
    if error.subscription is None or error.xact_seqno is None or error.command_id is None:
        return None
    place = CommandPlace(bytes.fromhex(error.xact_seqno.removeprefix("0x")), error.command_id)
    row = query_store(publication, lambda store: StoredCommands(store, publication.publication).row_of(place))
    if isinstance(row, ReplicationError):
        return error_line(STORE, row)
    return None if row is None else _compared(publication, error.subscription, row)


def _compared(publication: MonitoredPublication, subscription: str, row: CommandRow) -> ComparedRow:
    ends = {
        "Publisher": partial(_at_publisher, publication, row),
        f"Subscriber {subscription}": partial(_at_subscriber, publication, subscription, row),
    }
    pending = {where: PendingAnswer(where, ask, _PATIENCE_SECONDS) for where, ask in ends.items()}
    return ComparedRow(
        article=str(row.article.source),
        key=key_text(row.key) if row.key == row.new_key else f"{key_text(row.key)}, then {key_text(row.new_key)}",
        columns=[it.name for it in row.article.columns],
        ends=[_end(where, it) for where, it in pending.items()],
    )


def _end(where: str, pending: PendingAnswer[Rows]) -> RowAtEnd:
    answer = _answer(where, pending)
    if isinstance(answer, str):
        return RowAtEnd(where, None, answer)
    return RowAtEnd(where, [_cut(it) for it in answer[0]] if answer else None)


def _cut(value: str | None) -> str | None:
    return value if value is None or len(value) <= _LONGEST_VALUE else f"{value[:_LONGEST_VALUE]}…"


def _topology(publication: MonitoredPublication, *subscribers: str) -> Topology:
    wanted = [publication.publisher.connection, *(publication.subscription(it).connection for it in subscribers)]
    return Topology(publication, resolve_connections(wanted).by_id)


def _at_publisher(publication: MonitoredPublication, row: CommandRow) -> Rows:
    with _topology(publication).publisher(_APPLICATION) as publisher:
        return publisher.rows_of_key(row.article, [value for _, value in row.new_key])


def _at_subscriber(publication: MonitoredPublication, subscription: str, row: CommandRow) -> Rows:
    # The key of the session names rows of the model's tables, which are not read.
    with _topology(publication, subscription).subscriber(subscription, None, _APPLICATION) as opened:
        return opened.rows_of_key(row.article.at(subscription), [value for _, value in row.key])
