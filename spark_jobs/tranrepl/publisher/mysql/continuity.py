"""Whether a server's log is the one that was read: what lies before a place in it, and the place itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

from tranrepl.errors import INCONSISTENT_DISTRIBUTION_DATABASE, DataError, MustBeReinitializedError
from tranrepl.model.arrays import Ints
from tranrepl.model.position import SEQNOS_PER_PLACE
from tranrepl.mysql.session import Session, translated_errors
from tranrepl.publisher.continuity import RegisteredLog
from tranrepl.publisher.mysql.dump import blocks
from tranrepl.publisher.mysql.events import GTIDS, HEADER_BYTES, OFFSET_BITS, EventBlock, EventType
from tranrepl.publisher.mysql.positions import (
    FIRST_EVENT,
    BinlogPositions,
    file_number,
    file_of,
    offset_of,
    place_at,
    place_of,
    position_of,
)
from tranrepl.publisher.mysql.server import ServerLog, end_of_log
from tranrepl.publisher.mysql.table_maps import Flavor
from tranrepl.remedies import REINITIALIZE

_BETWEEN = (
    *(EventType.FORMAT_DESCRIPTION, EventType.PREVIOUS_GTIDS, EventType.ROTATE, EventType.STOP, EventType.HEARTBEAT),
    *GTIDS,
)
"""What may follow the end of a group."""


@dataclass(frozen=True, slots=True)
class LogHistory:
    """The log as it is now."""

    session: Session
    log: ServerLog

    @property
    def where(self) -> str:
        return self.log.where

    def files(self) -> dict[str, int]:
        """Return the sizes of the files that the server keeps."""
        with translated_errors(self.where):
            return {str(row[0]): int(row[1]) for row in self.session.execute("SHOW BINARY LOGS")}

    def began_at(self, file: int) -> datetime | None:
        """Return when a file began, which ended the one before; None where there is none."""
        if self.log.file(file) not in self.files():
            return None
        for block, at in self._events(place_at(file, FIRST_EVENT)):
            return datetime.fromtimestamp(int.from_bytes(block.event(at)[:4], "little"), UTC)
        return None

    def proof(self, place: int, last: bytes | None) -> str | None:
        """Return what lies before a place, in a word, and the event that begins a transaction; None where no group
        ends at the place."""
        before = self._gtids(place) if self.log.flavor is Flavor.MARIADB else self._beginning(place)
        if before is None:
            return None
        event = b"" if last is None else self._group_at(_begin(last))
        return f"{before} {event.hex()}"

    def require(self, registered: RegisteredLog) -> None:
        """Raise MustBeReinitializedError where what is registered is not of this log."""
        place = place_of(registered.position)
        found = self.proof(place, registered.last)
        if found is None:
            raise self._no_such_place(place)
        if registered.proof is not None and not self._is_of_log(registered.proof, found, registered.last):
            is_named = self.log.flavor is Flavor.MARIADB
            raise self._another_log(place, f"({found.partition(' ')[0]})" if is_named else "others")

    def _gtids(self, place: int) -> str | None:
        """Return the last GTID of each of MariaDB's replication domains before a place."""
        with translated_errors(self.where):
            ((gtids,),) = self.session.execute(
                "SELECT BINLOG_GTID_POS(%s, %s)", [self.log.file(file_of(place)), offset_of(place)]
            )
        return None if gtids is None else ",".join(sorted(str(gtids).split(",")))

    def _beginning(self, place: int) -> str | None:
        """Return how the place's file begins: the GTIDs before it, and the event that begins its first transaction,
        which holds a time to the microsecond; None where no group ends at the place."""
        found = []
        try:
            following = next(self._events(place), None)
            if following is not None and following[0].types[following[1]] not in _BETWEEN:
                return None
            for block, at in self._events(place - offset_of(place) + FIRST_EVENT):
                if block.places[at] > place:
                    break
                if block.types[at] in (EventType.PREVIOUS_GTIDS, *GTIDS):
                    found.append(block.event(at).hex())
                if block.types[at] in GTIDS:
                    break
        except (DataError, MustBeReinitializedError):
            # No event begins there. A refused login or a missing right is no reason to begin again.
            return None
        return ":".join(found)

    def _group_at(self, place: int) -> bytes:
        """Return the event that begins a transaction at a place; nothing where none begins there any more."""
        try:
            for block, at in self._events(place):
                if block.types[at] in GTIDS:
                    event = block.event(at)
                    return event if block.places[at] - _size(event) == place else b""
        except (DataError, MustBeReinitializedError):
            return b""
        return b""

    def _events(self, place: int) -> Iterator[tuple[EventBlock, int]]:
        """Yield the events that begin at a place or after it: a block, and an index in it."""
        with translated_errors(self.where):
            end = end_of_log(self.session, self.log.flavor)
        # Of a place beyond the end, the server says that there is none.
        for block in blocks(self.log, place, end if place <= end else place + 1):
            for at in np.flatnonzero(block.places > place).tolist():
                yield block, at

    def _is_of_log(self, registered: str, found: str, last: bytes | None) -> bool:
        """Compare proofs; where the transaction's file was purged, what lies before the place is all that there is."""
        purged = last is not None and self.log.file(file_of(_begin(last))) not in self.files()
        return registered == found or (purged and registered.partition(" ")[0] == found.partition(" ")[0])

    def _no_such_place(self, place: int) -> MustBeReinitializedError:
        """Return the error for a place that the log does not have, or has no more."""
        oldest = min(map(file_number, self.files()), default=0)
        if file_of(place) >= oldest:
            return self._another_log(place, "no transaction's end")
        return MustBeReinitializedError(
            f"{self.where}: the binary log has no place {BinlogPositions().text(position_of(place))} any more, from "
            "which it must be read: it was purged",
            remedy=REINITIALIZE,
        )

    def _another_log(self, place: int, found: str) -> MustBeReinitializedError:
        return MustBeReinitializedError(
            f"{self.where}: at {BinlogPositions().text(position_of(place))} the binary log has {found}, and not the "
            "transactions that were read up to there: it was reset, or the server was restored",
            remedy=REINITIALIZE,
            number=INCONSISTENT_DISTRIBUTION_DATABASE,
        )


@dataclass(slots=True)
class PassedOver:
    """What a log that is followed has brought: by it, the proof of a place becomes that of a later one."""

    _file: int
    _beginning: list[str] | None = None
    """How the file begins that it came to (`LogHistory.proof`); None: it is in the one it began in."""
    _first: str = ""
    """The first event that began a group."""
    _gtids: dict[str, str] = field(default_factory=dict)
    """The last ones, by domain."""
    _last: EventBlock | None = None

    def add(self, block: EventBlock) -> None:
        """Take in whole groups, or what lies between two."""
        at = np.flatnonzero(block.are(*GTIDS))
        if block.flavor is Flavor.MARIADB:
            self._add_gtids(block, block.starts[at])
        else:
            self._add_beginning(block, at)
        self._last = block

    def _add_gtids(self, block: EventBlock, starts: Ints) -> None:
        domains = block.data.numbers(starts + HEADER_BYTES + 8, "<u4")
        for domain in np.unique(domains).tolist():
            start = starts[domains == domain][-1:]
            server, number = (block.data.numbers(start + at, of)[0] for at, of in ((5, "<u4"), (HEADER_BYTES, "<u8")))
            self._gtids[str(domain)] = f"{domain}-{server}-{number}"

    def _add_beginning(self, block: EventBlock, gtids: Ints) -> None:
        files = block.places >> OFFSET_BITS
        if files[-1] != self._file:
            self._file, self._first, self._beginning = int(files[-1]), "", []
        known = np.flatnonzero((files == self._file) & (block.types == EventType.PREVIOUS_GTIDS))
        if len(known):
            self._beginning = [block.event(at).hex() for at in known.tolist()]
        of_file = gtids[files[gtids] == self._file]
        if len(of_file) and not self._first:
            self._first = block.event(int(of_file[0])).hex()

    def proof(self, registered: str, last: bytes | None) -> str:
        """Return the proof of where it has come to, from the one before it, where the transaction that begins at `last`
        is another one or is in what was added last."""
        before, _, event = registered.partition(" ")
        if self._gtids:
            gtids = {it.partition("-")[0]: it for it in before.split(",") if it} | self._gtids
            before = ",".join(sorted(gtids.values()))
        beginning = self._beginning
        if beginning is None and self._first and ":" not in before:
            beginning = [before]
        if beginning is not None:
            before = ":".join([*beginning, *([self._first] if self._first else [])])
        return f"{before} {self._group_at(last) or event}"

    def _group_at(self, last: bytes | None) -> str:
        block = self._last
        if last is None or block is None:
            return ""
        begins = block.places - block.data.numbers(block.starts + 9, "<u4")
        at = np.flatnonzero(block.are(*GTIDS) & (begins == _begin(last)))
        return block.event(int(at[0])).hex() if len(at) else ""


def _begin(seqno: bytes) -> int:
    """Return the place at which a transaction begins."""
    return int.from_bytes(seqno, "big") // SEQNOS_PER_PLACE


def _size(event: bytes) -> int:
    """Return the length of an event in its file, where it has a checksum."""
    return int.from_bytes(event[9:13], "little")
