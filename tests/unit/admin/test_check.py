"""What `check` finds without a server: the store and Java."""

from __future__ import annotations

import os
import resource
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from support.example_publication import EXAMPLE
from tranrepl.admin.check import in_numbers
from tranrepl.admin.early_warnings import longest_pause
from tranrepl.distributor.store import store_at
from tranrepl.errors import ConfigurationError
from tranrepl.model.names import TableName
from tranrepl.publisher.postgres.article_check import likely_table
from tranrepl.settings.publication import Publication
from tranrepl.spark.installation import require_fitting_spark, require_java


@pytest.mark.parametrize(
    ("schedule", "longest"),
    [
        ("*/5 * * * *", timedelta(minutes=5)),
        ("0 8-18 * * 1-5", timedelta(days=2, hours=14)),
        ("continuous", timedelta(minutes=10)),
        (None, None),
    ],
)
def test_the_longest_pause_between_runs(schedule: str | None, longest: timedelta | None) -> None:
    settings = {key: value for key, value in EXAMPLE.items() if key != "schedule"}
    publication = Publication.model_validate(settings if schedule is None else {**settings, "schedule": schedule})
    assert longest_pause(publication) == longest


def _java(folder: Path, says: str) -> Path:
    """Return a Java home whose `java -version` prints this on stderr."""
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
    assert "openjdk-17-jre-headless" in (refused.value.report.remedy or "")


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


@pytest.mark.parametrize("scheme", ["", "file://", "file:"])
def test_a_local_store_that_can_be_made_has_no_problem(scheme: str, tmp_path: Path) -> None:
    assert list(store_at(f"{scheme}{tmp_path}/not/yet/there").problems()) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("store", ["store", "./store", "file:store"])
def test_a_relative_store_is_refused(store: str) -> None:
    assert [problem.message for problem in store_at(store).problems()] == [f"distributor.store: {store!r} is relative"]


@pytest.mark.parametrize("store", ["s3a://bucket/path", "hdfs://host/path"])
def test_a_store_that_only_spark_would_reach_is_refused(store: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{store}': no store is at {store.partition('/')[0]}//"):
        store_at(store)


@pytest.mark.parametrize("store", ["s3:///path", "s3://a bucket/path", "az://container:80"])
def test_a_store_in_no_bucket_is_refused(store: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{store}': it names no bucket"):
        store_at(store)


def test_a_store_with_a_login_in_its_url_is_refused_without_repeating_it() -> None:
    with pytest.raises(ConfigurationError, match="its URL has a login in it") as raised:
        store_at("s3://key:hidden@bucket/path")
    assert "hidden" not in str(raised.value)


@pytest.mark.parametrize("store", ["s3://bucket/path?key=hidden", "gs://bucket/path?", "az://box/a#b", "file:///a?b"])
def test_a_store_with_a_query_in_its_url_is_refused_without_repeating_it(store: str) -> None:
    with pytest.raises(ConfigurationError, match="its URL has a query or a fragment") as raised:
        store_at(store)
    assert "hidden" not in str(raised.value)


def test_a_store_below_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    (problem,) = store_at(f"{file}/store").problems()
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
        (problem,) = store_at(f"{tmp_path}/store").problems()
    assert problem.message == f"distributor.store: '{tmp_path}/store': {tmp_path} is not writable for this user"


def test_the_store_is_written_and_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    assert list(store_at(str(tmp_path / "kept")).problems()) == []
    assert list(store_at(f"file://{tmp_path}/new/store").problems()) == []
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "kept"]


def test_a_full_store_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, resource.RLIM_INFINITY))
    try:
        (problem,) = store_at(str(tmp_path)).problems()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert "cannot be written: File too large" in problem.message
    assert problem.report.remedy == "make room there, or name another path to write to"
    assert list(tmp_path.iterdir()) == []


def _spark(folder: Path, version: str) -> Path:
    """Return a folder that `check` takes for a Spark."""
    for name in (
        "bin/spark-submit",
        "bin/spark-class",
        f"jars/spark-core_2.13-{version}.jar",
        "jars/hadoop-client-api-3.4.9.jar",
    ):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o755)
    return folder


def test_the_spark_submit_beside_this_python_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    require_fitting_spark()


@pytest.mark.parametrize(
    ("version", "said"),
    [("3.5.1", "starts Spark 3.5 ({home}), and pyspark here is 4."), (None, "SPARK_HOME={home}: there is no Spark")],
)
def test_a_spark_home_of_another_version_is_told(
    version: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = _spark(tmp_path / "spark", version) if version else tmp_path
    monkeypatch.setenv("SPARK_HOME", str(home))
    with pytest.raises(ConfigurationError) as refused:
        require_fitting_spark()
    assert said.format(home=home) in refused.value.message
    assert "unset SPARK_HOME" in (refused.value.report.remedy or "")


def test_without_spark_submit_the_way_to_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match="neither on PATH nor beside") as refused:
        require_fitting_spark()
    assert "pip install 'pyspark>=4.3'" in (refused.value.report.remedy or "")
    monkeypatch.setenv("PATH", str(_spark(tmp_path / "other", "3.5.1") / "bin"))
    with pytest.raises(ConfigurationError, match=r"starts Spark 3\.5"):
        require_fitting_spark()


def test_a_check_ends_with_what_it_counted() -> None:
    assert in_numbers(0, 2) == "no errors, 2 warnings"
    assert in_numbers(1, 0) == "1 error, no warnings"


@pytest.mark.parametrize("wanted", ["public.Ticket", "public.tickets", "sales.ticket", "public.tiket", "TICKET.ticket"])
def test_the_likely_table_is_found(wanted: str) -> None:
    tables = [TableName.parse(it) for it in ("public.ticket", "public.vendor", "audit.log")]
    assert str(likely_table(TableName.parse(wanted), tables)) == "public.ticket"
    for other in ("absent", "t"):
        assert likely_table(TableName("public", other), tables) is None
