"""Several jobs in one Spark application, and what happens when it dies between them or in the middle of one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.observed import assert_each_change_was_made_once, audited_site, make_transactions
from support.site import Site
from tranrepl.errors import ErrorKind, TransientError
from tranrepl.failpoint import VARIABLE, Failpoint
from tranrepl.jobs.requests import DistributionRequest, LogReaderRequest
from tranrepl.settings.publication import Publication
from tranrepl.spark.application import SparkApplication


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Return one whose connections are in the environment, as a person's are, with temporary files of its own."""
    site = audited_site(databases(), tmp_path / "store", step=None)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    for name, value in site.databases.environment.items():
        monkeypatch.setenv(name, value)
    return site


@pytest.mark.slow
@pytest.mark.submit
def test_jobs_of_one_application_go_on_after_one_of_them_died(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_transactions(site, 20)
    log_reader = LogReaderRequest(publication=site.publication)
    delivery = DistributionRequest(publication=site.publication, subscription="reporting")
    with SparkApplication("purchasing", "local[1]") as application:
        monkeypatch.setenv(VARIABLE, Failpoint.REGISTERED)
        with pytest.raises(TransientError, match=r"the log_reader job was killed \(status 137\)"):
            application.submit(log_reader)
        monkeypatch.delenv(VARIABLE)

        assert application.submit(delivery).transactions == 20
        driver = _driver(application)
        # A job that fails leaves the application to the next one.
        absent = DistributionRequest(publication=_renamed(site), subscription="reporting")
        error = application.submit(absent).error
        assert error is not None
        assert error.kind is ErrorKind.CONFIGURATION
        site.at_publisher("UPDATE item SET xact = 0")
        assert application.submit(log_reader).transactions == 1
        assert application.submit(delivery).transactions == 1
        assert _driver(application) == driver
        os.kill(driver, 0)
    assert_each_change_was_made_once(site)
    assert list((tmp_path / "temporary").iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.kill(driver, 0)


def _driver(application: SparkApplication) -> int:
    return application._drivers[-1]._process.pid


def _renamed(site: Site) -> Publication:
    return site.publication.model_copy(update={"publication": "absent"})


@pytest.mark.submit
def test_an_application_that_is_interrupted_is_killed(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_driver: object, _lasted: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tranrepl.spark.application._Driver._wait", interrupted)
    application = SparkApplication("purchasing", "local[1]")
    with pytest.raises(KeyboardInterrupt):
        _submit(application, LogReaderRequest(publication=site.publication))
    with pytest.raises(ProcessLookupError):
        os.kill(_driver(application), 0)
    assert [it for it in (tmp_path / "temporary").iterdir() if it.name.startswith("tranrepl-")] == []


def _submit(application: SparkApplication, request: LogReaderRequest) -> None:
    with application:
        application.submit(request)
