"""Stores that nobody can write to: told before anything is done, and nothing is lost where a job finds out."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from conftest import DatabasesFactory
from support.refusals import STATE, assert_kept_secret, assert_refused
from support.shell import publication_file, tranrepl
from support.site import Site
from tranrepl.admin import store_check
from tranrepl.errors import ConfigurationError
from tranrepl.jobs.requests import StoreCheckRequest


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    site = Site(databases(), tmp_path / "store", ["public.t"])
    site.at_publisher("CREATE TABLE t (id int PRIMARY KEY, v text)")
    return site


@pytest.mark.slow
@pytest.mark.submit
def test_a_store_that_only_spark_reaches_is_tried_by_a_job(site: Site, tmp_path: Path) -> None:
    environment = {"JAVA_HOME": os.environ.get("JAVA_HOME", ""), **site.databases.environment}
    distributor = {"connection": "distribution", "store": "s3a://bucket/store"}
    file = publication_file(tmp_path, [{"source": "public.t"}], distributor=distributor)
    outcome = tranrepl("check", file, environment=environment)
    assert_refused(outcome, "distributor.store: 's3a://bucket/store': Spark cannot write there: ")
    assert "hadoop-aws:3." in outcome.err
    assert_kept_secret(outcome, site.databases.publisher)


@pytest.mark.spark
def test_a_store_is_tried_in_sparks_way_and_left_as_it_was(site: Site, tmp_path: Path, spark: Any) -> None:
    # A folder stands for another file system: what writes is Spark's own code.
    store = tmp_path / "store"
    assert _problem(site, f"file://{store}", spark) is None
    assert [it for it in store.rglob("*") if it.is_file()] == []
    store.rmdir()
    store.write_text("a file where a folder should be", encoding="utf-8")
    assert "Spark cannot write there" in str(_problem(site, f"file://{store}", spark))
    assert re.search(
        "'nosuch://x/store': Spark cannot write there: .*nosuch", str(_problem(site, "nosuch://x/store", spark))
    )


def _problem(site: Site, store: str, spark: Any) -> ConfigurationError | None:
    distributor = site.publication.distributor.model_copy(update={"store": store})
    request = StoreCheckRequest(publication=site.publication.model_copy(update={"distributor": distributor}))
    try:
        assert store_check.run(spark, request, {}).error is None
    except ConfigurationError as refused:
        return refused
    return None


@pytest.mark.spark
def test_a_store_that_a_job_cannot_write_loses_nothing(site: Site, tmp_path: Path, spark: Any) -> None:
    site.spark = spark
    site.set_up()
    site.at_publisher("INSERT INTO t VALUES (1, 'a')")
    store = tmp_path / "store"
    shutil.rmtree(store)
    store.write_text("a file where a folder should be", encoding="utf-8")
    before = site.at_publisher(STATE)
    with pytest.raises(ConfigurationError, match=rf"store: {store} is not marked"):
        site.read_log().raise_error()
    assert site.at_publisher(STATE) == before
    store.unlink()
    site.set_up()
    site.run()
    assert site.differences() == []
