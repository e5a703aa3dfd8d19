"""Private folders in the temporary directory: those that killed processes have left go with the next one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tranrepl.spark.spark_submit import private_folder, write_private

_HOLD = """
import sys
from tranrepl.spark.spark_submit import private_folder
with private_folder() as folder:
    (folder / "request.json").touch()
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def _folders(temporary: Path) -> set[Path]:
    with private_folder() as own:
        return set(temporary.iterdir()) - {own}


def _grown_old(*paths: Path) -> None:
    for path in paths:
        os.utime(path, (0, 0), follow_symlinks=False)


def test_what_a_killed_process_has_left_goes_with_the_next_start(temporary: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as it:
        assert it.stdout is not None
        folder = Path(it.stdout.readline().strip())
        _grown_old(folder)
        assert _folders(temporary) == {folder}
        it.send_signal(signal.SIGKILL)
        it.wait()
    assert (folder / "request.json").exists()
    assert _folders(temporary) == set()


def test_a_folder_that_is_being_made_stays(temporary: Path) -> None:
    (temporary / "tranrepl-private-new").mkdir()
    assert _folders(temporary) == {temporary / "tranrepl-private-new"}


def test_only_our_own_folders_go(temporary: Path) -> None:
    elsewhere, link, file = (temporary / it for it in ("elsewhere", "tranrepl-private-link", "tranrepl-private-file"))
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    link.symlink_to(elsewhere)
    file.touch()
    others = {elsewhere, link, file}
    if os.getuid() == 0:
        anothers = temporary / "tranrepl-private-anothers"
        anothers.mkdir()
        os.chown(anothers, 12345, 12345)
        others.add(anothers)
    _grown_old(*others)
    assert _folders(temporary) == others
    assert (elsewhere / "kept").exists()


def test_what_a_link_inside_leads_to_stays(temporary: Path) -> None:
    left, elsewhere = temporary / "tranrepl-private-left", temporary / "elsewhere"
    left.mkdir()
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    (left / "link").symlink_to(elsewhere)
    _grown_old(left)
    assert _folders(temporary) == {elsewhere}
    assert (elsewhere / "kept").exists()


def test_a_folder_is_private_and_goes_at_the_end() -> None:
    with private_folder() as folder:
        write_private(folder / "request.json", "{}")
        assert (folder.stat().st_mode & 0o777, (folder / "request.json").stat().st_mode & 0o777) == (0o700, 0o600)
    assert not folder.exists()
