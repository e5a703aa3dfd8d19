"""The archive of Spark's classes: made once, used by every job, and never in a job's way."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path

import pytest

from tranrepl.errors import InternalError
from tranrepl.spark import class_archive
from tranrepl.spark.class_archive import find_archive, make_archive, start_variables
from tranrepl.spark.spark_submit import spark_submit_binary


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in the place of Python's prefix, with a blank in its name."""
    return tmp_path_factory.mktemp("my python")


@pytest.fixture
def environment(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return an environment without an archive; one made for it is of a JVM that does next to nothing."""
    monkeypatch.setattr(sys, "prefix", str(prefix))
    monkeypatch.setattr(class_archive, "_TRAINING", Path("--version"))
    given = {name: value for name, value in os.environ.items() if name != "SPARK_SUBMIT_OPTS"}
    return {**given, "XDG_CACHE_HOME": str(prefix / "nothing")}


def _version(environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Start spark-submit's JVM with the class path of a job's."""
    options = environment.get("SPARK_SUBMIT_OPTS", "")
    return subprocess.run(
        [spark_submit_binary(), "--version"],
        env={**environment, "SPARK_SUBMIT_OPTS": f"{options} -Xlog:class+load:stdout"},
        capture_output=True,
        text=True,
        check=True,
    )


def _archived(output: str) -> int:
    return sum("org.apache.spark" in line and "shared objects file (top)" in line for line in output.splitlines())


@pytest.mark.slow
@pytest.mark.submit
def test_an_archive_is_made_once_and_used(environment: dict[str, str]) -> None:
    # For the same Spark, but a Java that was there before.
    where, _, _ = str(class_archive._name(environment)).rpartition("-")
    older = Path(sys.prefix, "var", "cache", "tranrepl", f"{where}-0123456789abcdef-4.jsa")
    shutil.rmtree(older.parent, ignore_errors=True)
    older.parent.mkdir(parents=True)
    older.write_bytes(b"four")
    assert start_variables(environment) == {}
    assert _archived(_version(environment).stdout) == 0
    made = make_archive(environment)
    assert [made] == list(older.parent.iterdir())
    assert make_archive(environment) == made == find_archive(environment)
    assert _archived(_version({**environment, **start_variables(environment)}).stdout) > 10


@pytest.mark.slow
@pytest.mark.submit
@pytest.mark.parametrize("damage", ["cut off", "of another program", "flipped"])
def test_a_damaged_archive_stops_nothing(environment: dict[str, str], damage: str) -> None:
    whole = make_archive(environment)
    bytes_before = whole.read_bytes()
    whole.unlink()
    if damage == "cut off":
        whole.write_bytes(bytes_before[: len(bytes_before) // 2])
    elif damage == "of another program":
        whole.write_bytes(b"x" * len(bytes_before))
    else:
        middle = len(bytes_before) // 2
        whole.write_bytes(bytes_before[:middle] + bytes(4096) + bytes_before[middle + 4096 :])
    try:
        started = start_variables(environment)
        assert started == {}
        outcome = _version({**environment, **started})
        assert "version 4" in outcome.stderr
        assert _archived(outcome.stdout) == 0
    finally:
        whole.write_bytes(bytes_before)


def test_options_of_ones_own_are_kept(environment: dict[str, str], tmp_path: Path) -> None:
    environment = {**environment, "XDG_CACHE_HOME": str(tmp_path), "SPARK_CONF_DIR": str(tmp_path)}
    assert start_variables(environment) == {}
    archive = tmp_path / "tranrepl" / f"{class_archive._name(environment)}-4.{zlib.crc32(b'four'):08x}.jsa"
    archive.parent.mkdir()
    archive.write_bytes(b"four")
    options = start_variables({**environment, "SPARK_SUBMIT_OPTS": "-Dmine=1"})["SPARK_SUBMIT_OPTS"]
    assert options.startswith(f'"-XX:SharedArchiveFile={archive}" ')
    assert options.endswith(" -Dmine=1")
    assert start_variables({**environment, "SPARK_SUBMIT_OPTS": "-XX:SharedArchiveFile=my.jsa"}) == {}


@pytest.mark.slow
@pytest.mark.submit
def test_where_none_can_be_made_nothing_is_left(environment: dict[str, str], prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.log.level ERROR\n", encoding="utf-8")
    cache = prefix / "var" / "cache" / "tranrepl"
    before = set(cache.glob("*"))
    # A JVM archives no class path that has a folder with files in it.
    with pytest.raises(InternalError, match="could not be made") as raised:
        make_archive({**environment, "SPARK_CONF_DIR": str(tmp_path)})
    assert "non-empty directory" in str(raised.value.report.remedy)
    assert set(cache.glob("*")) == before


def test_without_java_there_is_none(environment: dict[str, str], tmp_path: Path) -> None:
    assert find_archive({**environment, "JAVA_HOME": str(tmp_path)}) is None
    assert find_archive({**environment, "SPARK_HOME": str(tmp_path)}) is None
