"""Servers for tests that cannot be had: `make servers` says so in one line each, and goes on."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from support.checkout import CHECKOUT


@pytest.mark.parametrize(
    ("apt", "reason"),
    [
        ("exit 127", "error: apt has no archive of Debian's"),
        ('[ "$1" = indextargets ] && echo http://archive.test || { echo "E: no route" >&2; exit 100; }', "E: no route"),
    ],
    ids=["no apt", "no network"],
)
def test_a_server_that_cannot_be_had_is_told_in_one_line(tmp_path: Path, apt: str, reason: str) -> None:
    for name, text in (("apt-get", apt), ("npm", "echo 'npm: none' >&2; exit 1")):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        program.chmod(0o755)
    ran = subprocess.run(
        ["/bin/sh", str(CHECKOUT / "tests" / "support" / "environment.sh"), "others"],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    said = [it for it in ran.stdout.splitlines() if "cannot be had" in it]
    assert said == [
        f"mysql-9.7 cannot be had, its tests are skipped: {reason}",
        f"mariadb-11.8 cannot be had, its tests are skipped: {reason}",
        "azurite cannot be had, its tests are skipped: npm: none",
    ]
