"""Who may read a command store on a mounted path: nobody but its user."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pytest

from tranrepl.admin.mounted_store import store_warnings
from tranrepl.distributor.command_file import publish, write_commands, write_few_commands

Write = Callable[[Path, Iterable[pa.RecordBatch]], str]


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o277])
@pytest.mark.parametrize("write", [write_commands, write_few_commands])
def test_folders_and_files_are_their_users_alone(tmp_path: Path, umask: int, write: Write) -> None:
    store = tmp_path / "above" / "store"
    before = os.umask(umask)
    try:
        publish(store / "batch", write(store / "batch", []))
    finally:
        os.umask(before)
    found = {it.relative_to(tmp_path).as_posix(): oct(it.stat().st_mode & 0o777) for it in tmp_path.rglob("*")}
    (file,) = [it for it in found if it.startswith("above/store/batch/")]
    assert found == {"above": "0o700", "above/store": "0o700", "above/store/batch": "0o700", file: "0o600"}
    assert list(store_warnings(str(store))) == []


@pytest.mark.parametrize("place", [".", "batch", "batch/file"])
def test_wider_rights_are_a_warning(tmp_path: Path, place: str) -> None:
    store = tmp_path / "the store"
    publish(store / "batch", write_commands(store / "batch", []))
    (file,) = (store / "batch").iterdir()
    wider = file if place == "batch/file" else store / place
    wider.chmod(wider.stat().st_mode | 0o040)
    (warning,) = store_warnings(str(store))
    assert f"chmod -R u+rwX,go= '{store}'" in warning
    assert list(store_warnings("s3a://bucket/store")) == list(store_warnings(str(tmp_path / "none"))) == []
