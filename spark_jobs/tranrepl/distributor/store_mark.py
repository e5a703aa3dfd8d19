"""Whose a command store is: a file in it names the distribution database whose batches it holds.

The clean-up removes what its own distribution database does not know: in a store that two of them write to, that would
be the other one's batches. Publications of one distribution database may share a store.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from pydantic import BaseModel, ConfigDict, ValidationError

from tranrepl.distributor.command_store import CommandStore, path_in
from tranrepl.distributor.database import DistributionDatabase, PublicationRecord
from tranrepl.errors import ConfigurationError, ReplicationError
from tranrepl.model.commands import FIRST_XACT_SEQNO

MARK = "_tranrepl_store.json"


class StoreMark(BaseModel):
    """What the file says."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    distribution_id: str
    """The distribution database's own, which a copy or a backup of it has too."""
    distribution_database: str
    """Its name, for people."""

    @classmethod
    def of(cls, database: DistributionDatabase) -> StoreMark:
        return cls(distribution_id=database.distribution_id(), distribution_database=database.name)


def store_mark_problems(database: DistributionDatabase, store: CommandStore) -> Iterator[ConfigurationError]:
    """Yield an error where a store is another distribution database's. One of an earlier version, which setup brings up
    to date, cannot say."""
    found = store.read_text(MARK)
    is_own = found is None
    with suppress(ReplicationError):
        # What keeps the database from answering is reported elsewhere.
        is_own = is_own or database.is_earlier() or (database.is_current() and _is_of(database, found or ""))
        if not is_own:
            yield _foreign(store, found or "")


def store_loss_warnings(
    database: DistributionDatabase, record: PublicationRecord | None, store: CommandStore
) -> Iterator[str]:
    """Yield a warning where a store has lost its mark, though a publication's commands are in it."""
    if record is None or record.store.url != store.url or store.read_text(MARK) is not None:
        return
    if database.batches.after(record, FIRST_XACT_SEQNO, 1):
        yield (
            f"distributor.store: {store.url!r} lacks the commands that were stored in it: mount it here, or "
            "restore it; the next delivery stops without them"
        )


def mark_store(database: DistributionDatabase, store: CommandStore) -> list[str]:
    """Let a store be this distribution database's. Return what was done, in words. Raises ConfigurationError where it
    is another one's."""
    done: list[str] = []
    try:
        if store.read_text(MARK) is None:
            store.write_text(MARK, StoreMark.of(database).model_dump_json())
            done = [f"marked store {store.url} as that of {database.where}"]
    except ConfigurationError:
        # What setup writes there says so, where it writes something; jobs refuse a store without a mark.
        return []
    # Another setup may have been here at once.
    require_own_store(database, store)
    return done


def require_own_store(database: DistributionDatabase, store: CommandStore) -> None:
    """Raise ConfigurationError where the store is not this distribution database's."""
    found = store.read_text(MARK)
    if found is None:
        raise ConfigurationError(
            f"store: {store.url} is not marked as that of {database.where}: it is not mounted, or it was restored "
            f"without its file {MARK}",
            remedy="mount it; where it is there, `tranrepl setup FILE` marks it",
        )
    if not _is_of(database, found):
        raise _foreign(store, found)


def has_own_mark(database: DistributionDatabase, store: CommandStore) -> bool:
    """Return whether the store is marked as this distribution database's. Raises ReplicationError where it cannot be
    reached."""
    found = store.read_text(MARK)
    return found is not None and _is_of(database, found)


def _is_of(database: DistributionDatabase, text: str) -> bool:
    found = _parsed(text)
    return found is not None and found.distribution_id == database.distribution_id()


def _parsed(text: str) -> StoreMark | None:
    try:
        return StoreMark.model_validate_json(text)
    except ValidationError:
        return None


def _foreign(store: CommandStore, text: str) -> ConfigurationError:
    found = _parsed(text)
    whose = (
        f"distribution database {found.distribution_database}, {found.distribution_id}" if found else "another program"
    )
    return ConfigurationError(
        f"distributor.store: {store.url!r} belongs to {whose}: the clean-up of one would remove the batches of the "
        "other",
        remedy=f"give this publication a store of its own; where that distribution database does not exist any more, "
        f"remove {path_in(store, MARK)}, and run `tranrepl setup FILE`",
    )
