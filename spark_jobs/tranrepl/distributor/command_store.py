"""The command store: a folder for each batch, with one Parquet file in it.

A folder counts only once its batch is registered in the distribution database. Its name is new for each attempt, so
that nothing is renamed, and nothing has to be listed to find a file.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import pyarrow as pa

from tranrepl.errors import ConfigurationError

FILE = "part-0.parquet"
"""A batch's file in its folder."""
FOLDER = re.compile(r"[0-9a-f]{32}")
"""Pattern of the folders' names: anything else in the store is left alone."""
TRIED_BYTES = 64 * 1024
"""What a check of the store writes."""


def new_folder() -> str:
    """Return a name that no other attempt has."""
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True)
class StoredFolder:
    name: str
    written: datetime
    """When it was written last."""
    bytes: int


@dataclass(frozen=True, slots=True)
class StoreSpace:
    free_bytes: int
    free_percent: float
    """The part of its space or of its number of files, whichever is less."""


class NewFile(Protocol):
    """A batch's file while it is written. Its methods raise ReplicationError."""

    @property
    def closed(self) -> bool: ...

    def write(self, data: bytes, /) -> int:
        """Write all of it."""
        ...

    def flush(self) -> None:
        """Do nothing that counts: what is written is there after `close`."""
        ...

    def close(self) -> None:
        """Let readers see the file, which a crash of any machine leaves whole from then on."""
        ...

    def abandon(self) -> None:
        """Leave nothing of it, and raise nothing."""
        ...


class CommandStore(Protocol):
    """One store. It is pickled to where it is used, with the secrets that lead to it; none is in its repr.

    Its methods raise ReplicationError where the store cannot be reached or changed from here.
    """

    @property
    def url(self) -> str:
        """The store as settings name it."""
        ...

    @property
    def gathering_interval(self) -> float:
        """Seconds for which a continuous log reader gathers transactions for a batch, where the file names no other."""
        ...

    @property
    def reads_at_once(self) -> int:
        """How many files are read side by side where one follows the other."""
        ...

    def new_file(self, folder: str) -> NewFile:
        """Begin a batch's file, in a folder of which nothing is there."""
        ...

    def read(self, folder: str) -> bytes:
        """Return a batch's file, asking the store once. Raises OSError where it is gone."""
        ...

    def open(self, folder: str) -> pa.NativeFile:
        """Open a batch's file to read some of it. Raises OSError where it is gone."""
        ...

    def folders(self) -> Iterator[StoredFolder]:
        """Yield what there is of batches, registered or not."""
        ...

    def remove(self, folders: Iterable[str]) -> None:
        """Remove folders. Idempotent."""
        ...

    def read_text(self, name: str) -> str | None:
        """Return a small file beside the folders; None where it is not there."""
        ...

    def write_text(self, name: str, text: str) -> None:
        """Write a small file beside the folders where none of the name is. Of several at once, one writes it."""
        ...

    def remove_text(self, name: str) -> None:
        """Remove a small file beside the folders. Idempotent."""
        ...

    def space(self) -> StoreSpace | None:
        """Return what we may still use of the disk; None where there is none to ask."""
        ...

    def problems(self) -> Iterator[ConfigurationError]:
        """Yield what keeps the store from being used: something is written, read, listed and removed."""
        ...

    def warnings(self) -> Iterator[str]:
        """Yield who else may read it: the store has all rows that are changed."""
        ...


def path_in(store: CommandStore, name: str) -> str:
    """Return a folder or a file of the store as a person names it."""
    return f"{store.url.rstrip('/')}/{name}"
