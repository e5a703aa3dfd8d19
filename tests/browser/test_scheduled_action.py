"""An action from Replication Monitor's page to its end: Airflow at a path of its address, its scheduler at work."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from support.embedded_postgres import PostgresServer
from support.monitor_pages import frame_of, open_tab, opened
from support.monitored_sites import ADMIN, SECRET_ID, monitored_sites

pytestmark = [pytest.mark.slow, pytest.mark.scheduler]

_PATH = "/airflow"
_PATIENCE_SECONDS = 240.0


def test_a_skip_is_executed_by_the_scheduler_and_seen_on_the_page(
    chromium: Browser, own_server: PostgresServer, tmp_path: Path
) -> None:
    with (
        monitored_sites(own_server, tmp_path, _PATH, scheduled=True) as sites,
        opened(chromium, sites, ADMIN) as page,
    ):
        assert sites.url.endswith(_PATH)
        frame = frame_of(page)
        frame.get_by_role("link", name="shop").click()
        expect(frame.get_by_role("heading", name="shop")).to_be_visible()
        assert f"{_PATH}/monitor/publication/shop" in page.url
        frame.get_by_role("navigation").get_by_role("link", name="Actions").click()
        frame.get_by_role("link", name="Skip the transaction…").click()
        seqno = frame.locator("main code").first.inner_text()
        frame.get_by_label("Type the transaction").fill(seqno)
        frame.get_by_role("button", name="Skip it").click()
        output = frame.locator("output")
        expect(output).to_contain_text("was skipped by an administrator", timeout=_PATIENCE_SECONDS * 1000)
        expect(output).to_contain_text("shop_administer: Succeeded, task log")
        output.locator("a").first.click()
        page.wait_for_url(re.compile(f"{_PATH}/dags/shop_administer/runs/"))
        expect(open_tab(page).get_by_role("heading", name="shop")).to_be_visible()

        page.goto(f"{sites.url}/monitor/publication/shop/actions")
        expect(page.locator("tr", has_text="shop_administer")).to_contain_text("Succeeded")
        sites.shop.deliver().raise_error()
        page.goto(f"{sites.url}/monitor/publication/shop")
        expect(page.locator("header")).to_contain_text("1 subscription: Paused")
        noted = sites.shop.at_subscriber(f"SELECT count(*) FROM item WHERE id = {SECRET_ID}")
        assert noted == [(0,)], "the UPDATE that was skipped had no row"
