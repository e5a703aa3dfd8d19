"""What `check` finds without a server: the store and Java."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tranrepl.check import store_problems
from tranrepl.errors import ConfigurationError
from tranrepl.java import require_java


def _java(folder: Path, says: str) -> Path:
    """A Java home whose `java -version` prints this on stderr."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{says}\nEND\n", encoding="utf-8")
    java.chmod(0o755)
    return folder


@pytest.mark.parametrize("where", ["JAVA_HOME", "PATH"])
@pytest.mark.parametrize(
    "says",
    [
        'openjdk version "17.0.9" 2023-10-17',
        'java version "21"',
        'Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "17"',
    ],
)
def test_a_recent_java_is_found(where: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = _java(tmp_path / "java", says)
    monkeypatch.setenv("JAVA_HOME", str(home) if where == "JAVA_HOME" else "")
    monkeypatch.setenv("PATH", f"{home / 'bin'}:/usr/bin:/bin" if where == "PATH" else "/usr/bin:/bin")
    require_java()


@pytest.mark.parametrize(
    ("says", "shown"),
    [
        ('java version "1.8.0_392"', "1.8.0_392"),
        ('openjdk version "11.0.2"', "11.0.2"),
        ("no java here", "no java here"),
        ("", ""),
    ],
)
def test_another_java_is_refused(says: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path / "java", says)))
    with pytest.raises(ConfigurationError, match="Spark needs Java 17") as refused:
        require_java()
    assert shown in refused.value.message
    assert "openjdk-17-jre-headless" in (refused.value.remedy or "")


def test_no_java_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"there is none \(on PATH\)"):
        require_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigurationError, match=rf"there is none \(JAVA_HOME={tmp_path}\)"):
        require_java()


def test_a_java_that_cannot_be_started_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = _java(tmp_path / "java", 'version "17"')
    (home / "bin" / "java").chmod(0o644)
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(ConfigurationError, match=r"java cannot be started: Permission denied"):
        require_java()


@pytest.mark.parametrize("store", ["s3a://bucket/path", "hdfs://host/path"])
def test_a_store_elsewhere_is_left_to_the_job(store: str) -> None:
    assert list(store_problems(store)) == []


@pytest.mark.parametrize("scheme", ["", "file://", "file:"])
def test_a_local_store_that_can_be_made_has_no_problem(scheme: str, tmp_path: Path) -> None:
    assert list(store_problems(f"{scheme}{tmp_path}/not/yet/there")) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("store", ["store", "./store", "file:store"])
def test_a_relative_store_is_refused(store: str) -> None:
    assert [problem.message for problem in store_problems(store)] == [f"distributor.store: {store!r} is relative"]


def test_a_store_below_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    (problem,) = store_problems(f"{file}/store")
    assert problem.message == f"distributor.store: '{file}/store': {file} is not a folder"


def test_a_store_in_a_folder_that_we_may_not_enter_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.stat

    def stat(path: str | Path, **options: Any) -> os.stat_result:
        # Root enters everywhere: the refusal has to be played.
        if Path(path).parent == tmp_path:
            raise PermissionError(13, "Permission denied")
        return real(path, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", stat)
        patched.setattr(os, "access", lambda *_: False)
        (problem,) = store_problems(f"{tmp_path}/store")
    assert problem.message == f"distributor.store: '{tmp_path}/store': {tmp_path} is not writable for this user"
