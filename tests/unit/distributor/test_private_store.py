"""Who may read a command store on a mounted path: nobody but its user."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pytest

from tranrepl.distributor.command_file import write_commands, write_few_commands
from tranrepl.distributor.command_store import FILE, CommandStore
from tranrepl.distributor.store import store_at

Write = Callable[[CommandStore, Iterable[pa.RecordBatch]], str]


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o277])
@pytest.mark.parametrize("write", [write_commands, write_few_commands])
def test_folders_and_files_are_their_users_alone(tmp_path: Path, umask: int, write: Write) -> None:
    store = tmp_path / "above" / "store"
    before = os.umask(umask)
    try:
        batch = write(store_at(str(store)), [])
    finally:
        os.umask(before)
    found = {it.relative_to(tmp_path).as_posix(): oct(it.stat().st_mode & 0o777) for it in tmp_path.rglob("*")}
    folder = f"above/store/{batch}"
    assert found == {"above": "0o700", "above/store": "0o700", folder: "0o700", f"{folder}/{FILE}": "0o600"}
    assert list(store_at(str(store)).warnings()) == []


@pytest.mark.parametrize("place", [".", "batch", "batch/file"])
def test_wider_rights_are_a_warning(tmp_path: Path, place: str) -> None:
    store = tmp_path / "the store"
    batch = store / write_commands(store_at(str(store)), [])
    wider = {".": store, "batch": batch, "batch/file": batch / FILE}[place]
    wider.chmod(wider.stat().st_mode | 0o040)
    (warning,) = store_at(str(store)).warnings()
    assert f"chmod -R u+rwX,go= '{store}'" in warning
    assert list(store_at(str(tmp_path / "none")).warnings()) == []
