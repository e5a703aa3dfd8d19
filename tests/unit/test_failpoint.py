"""Which failpoint ends a process, and when."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tranrepl import failpoint
from tranrepl.failpoint import Failpoint

_REACHES = """
from tranrepl.failpoint import Failpoint, reach
for stream in (0, 1, 0, 1):
    reach(Failpoint.VOTED, stream)
    reach(Failpoint.APPLIED, stream)
    print(stream, flush=True)
"""


@pytest.mark.parametrize(
    ("choice", "passed"),
    [
        (None, ["0", "1", "0", "1"]),
        ("voted", []),
        ("voted:3", ["0", "1"]),
        ("voted@1", ["0"]),
        ("applied@1:2", ["0", "1", "0"]),
        ("voted@2", ["0", "1", "0", "1"]),
        ("begin", ["0", "1", "0", "1"]),
    ],
)
def test_a_process_kills_itself_at_the_chosen_place(choice: str | None, passed: list[str]) -> None:
    environment = {**os.environ, **({failpoint.VARIABLE: choice} if choice else {})}
    ended = subprocess.run(
        [sys.executable, "-c", _REACHES], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.stdout.split() == passed
    assert ended.returncode == (0 if len(passed) == 4 else -signal.SIGKILL)


@pytest.mark.parametrize("choice", ["votd", "voted:0", "voted@", "voted@1:", "voted 1"])
def test_a_place_that_does_not_exist_is_an_error(choice: str) -> None:
    environment = {**os.environ, failpoint.VARIABLE: choice}
    ended = subprocess.run(
        [sys.executable, "-c", _REACHES], env=environment, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert f"TRANREPL_FAILPOINT: {choice!r} is no failpoint" in ended.stderr
    assert ", ".join(Failpoint) in ended.stderr
