"""Labels that take turns while rows are compared or corrected: the Publisher shows those of now for any row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conftest import DatabasesFactory
from support.site import Site
from support.spark_here import SparkHere
from support.whole_run import good_run
from tranrepl.errors import ErrorKind
from tranrepl.validation import job

_TURNS = (("sad", "blue"), ("glad", "sad"), ("blue", "glad"))


@pytest.mark.parametrize("step", ["compare", pytest.param("corrections", marks=pytest.mark.slow)])
def test_nothing_is_told_or_corrected_by_labels_that_are_not_registered(
    databases: DatabasesFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    subscription = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}
    site = Site(databases(), tmp_path / "store", ["public.t"], SparkHere(), [subscription], replicate_ddl=True)
    enum = "CREATE TYPE mood AS ENUM ('sad', 'glad')"
    site.at_publisher(enum, "CREATE TABLE t (id int PRIMARY KEY, mood mood)")
    site.at_subscriber(enum)
    site.at_publisher("INSERT INTO t SELECT n, (ARRAY['sad', 'glad'])[n % 2 + 1]::mood FROM generate_series(1, 9) n")
    site.set_up()
    good_run(site)
    if step == "corrections":
        site.at_subscriber("UPDATE t SET mood = 'sad'")
    original = getattr(job, step)

    def renamed(*given: Any, **named: Any) -> object:
        monkeypatch.undo()
        site.at_publisher(*(f"ALTER TYPE mood RENAME VALUE '{before}' TO '{now}'" for before, now in _TURNS))
        return original(*given, **named)

    monkeypatch.setattr(job, step, renamed)
    error = site.validate(repair="apply").error
    assert error is not None
    assert error.kind is ErrorKind.TRANSIENT, error
    assert "a label of type public.mood is not registered yet" in error.message
    site.validate(repair="apply").raise_error()
    assert site.at_subscriber("SELECT * FROM t ORDER BY id") == site.at_publisher("SELECT * FROM t ORDER BY id")
