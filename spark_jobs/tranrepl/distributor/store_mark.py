"""Whose a command store is: a file in it names the distribution database whose batches it holds.

The clean-up removes what its own distribution database does not know: in a store that two of them write to, that would
be the other one's batches. Publications of one distribution database may share a store.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, ValidationError

from tranrepl.distributor.command_file import make_private, mounted_path, new_private_file
from tranrepl.distributor.database import DistributionDatabase
from tranrepl.distributor.store import new_folder, read_file, write_file
from tranrepl.distributor.store_folders import StoreFolders
from tranrepl.errors import ConfigurationError, ReplicationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


def store_mark_problems(database: DistributionDatabase, store: str) -> Iterator[ConfigurationError]:
    """Yield an error where a mounted store is another distribution database's. One of an earlier version, which setup
    brings up to date, cannot say."""
    path = mounted_path(store)
    found = _read(path / MARK) if path is not None else None
    is_own = found is None
    with suppress(ReplicationError):
        # What keeps the database from answering is reported elsewhere.
        is_own = is_own or database.is_earlier() or (database.is_current() and _is_of(database, found or ""))
        if not is_own:
            yield _foreign(store, found or "")


def mark_store(database: DistributionDatabase, store: str) -> list[str]:
    """Let a mounted store be this distribution database's; another one is marked by its first job, which Spark reaches
    it by. Return what was done, in words. Raises ConfigurationError where it is another one's."""
    path = mounted_path(store)
    if path is None:
        return []
    text, written = StoreMark.of(database).model_dump_json(), path / f"{MARK}.{new_folder()}"
    try:
        if (path / MARK).exists():
            done = []
        else:
            make_private(path)
            with new_private_file(written) as file:
                file.write(text.encode())
            # Of two setups at once, one makes it.
            with suppress(FileExistsError):
                (path / MARK).hardlink_to(written)
            written.unlink()
            done = [f"marked store {store} as that of {database.where}"]
    except OSError:
        # What setup writes there says so, where it writes something; jobs refuse a store without a mark.
        return []
    # Another setup may have been here at once.
    require_own_store(database, store)
    return done


def require_own_store(database: DistributionDatabase, store: str, spark: SparkSession | None = None) -> bool:
    """Raise ConfigurationError where the store is not this distribution database's, or a mounted one is not marked.
    Return whether another one is marked; with Spark it is marked if it is not."""
    path = mounted_path(store)
    if path is not None:
        found = _read(path / MARK)
    elif spark is not None:
        found = read_file(spark, _in(store))
    else:
        found = StoreFolders(store).read(MARK)
    if found is not None:
        if not _is_of(database, found):
            raise _foreign(store, found)
        return True
    if path is not None:
        raise ConfigurationError(
            f"store: {store} is not marked as that of {database.where}: it is not mounted, or it was restored without "
            f"its file {MARK}",
            remedy="mount it; where it is there, `tranrepl setup FILE` marks it",
        )
    if spark is not None:
        write_file(spark, _in(store), StoreMark.of(database).model_dump_json())
    return spark is not None


def has_own_mark(database: DistributionDatabase, store: str) -> bool:
    """Return whether the store is marked as this distribution database's; False where it is not reached from here."""
    try:
        found = StoreFolders(store).read(MARK)
    except ConfigurationError:
        return False
    return found is not None and _is_of(database, found)


def _in(store: str) -> str:
    return f"{store.rstrip('/')}/{MARK}"


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"store: {path} cannot be read: {error}", remedy="let this user read and write all of the store"
        ) from error


def _is_of(database: DistributionDatabase, text: str) -> bool:
    found = _parsed(text)
    return found is not None and found.distribution_id == database.distribution_id()


def _parsed(text: str) -> StoreMark | None:
    try:
        return StoreMark.model_validate_json(text)
    except ValidationError:
        return None


def _foreign(store: str, text: str) -> ConfigurationError:
    found = _parsed(text)
    whose = (
        f"distribution database {found.distribution_database}, {found.distribution_id}" if found else "another program"
    )
    return ConfigurationError(
        f"distributor.store: {store!r} belongs to {whose}: the clean-up of one would remove the batches of the other",
        remedy=f"give this publication a store of its own; where that distribution database is no more, remove "
        f"{_in(store)}, and run `tranrepl setup FILE`",
    )
