"""Chromium, and what Replication Monitor shows in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from support.embedded_postgres import PostgresServer
from support.monitor_pages import started_chromium
from support.monitored_sites import SECRET_ID, MonitoredSites, monitored_sites


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    # Airflow's own pages take their time where other processes are at work.
    expect.set_options(timeout=30_000)
    with started_chromium() as browser:
        yield browser


@pytest.fixture(scope="session")
def monitored(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MonitoredSites]:
    folder = tmp_path_factory.mktemp("monitor")
    with monitored_sites(postgres, folder) as sites:
        yield sites
    # What tests of all files looked for and saw is in no log of Airflow's.
    logs = [it.read_text(encoding="utf-8", errors="replace") for it in folder.joinpath("logs").rglob("*.log")]
    assert any("/monitor/" in it for it in logs)
    assert not any(str(SECRET_ID) in it for it in logs), "a value of a row is in a log"
