"""The overview of Replication Monitor: what is in trouble first, for those who may see it."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect

from support.monitor_pages import PATIENCE_MILLISECONDS, frame_of, opened
from support.monitored_sites import ADMIN, SECRET_ID, VIEWER, MonitoredSites, deliver

pytestmark = pytest.mark.scheduler

_SECRET = str(SECRET_ID)
_PAGES = ("", "api/overview")


def _publications(page: Page) -> list[str]:
    return frame_of(page).locator("tr.publication th").all_inner_texts()


def test_what_is_in_trouble_comes_first(chromium: Browser, monitored: MonitoredSites) -> None:
    with opened(chromium, monitored, ADMIN) as page:
        assert _publications(page) == ["fresh", "shop", "away", "orders"]
        rows = frame_of(page).locator("tbody")
        expect(rows.nth(0)).to_contain_text("Not set up yet")
        expect(rows.nth(1)).to_contain_text("Failed")
        expect(rows.nth(1)).to_contain_text(_SECRET)
        expect(rows.nth(3)).to_contain_text("Idle")
        expect(rows.nth(3)).to_contain_text("log retained")


def test_a_publisher_without_an_answer_is_told_in_its_row(chromium: Browser, monitored: MonitoredSites) -> None:
    with opened(chromium, monitored, ADMIN) as page:
        _refresh(page)
        row = frame_of(page).locator("tbody", has=page.get_by_role("link", name="away"))
        expect(row).to_contain_text("Publisher: connection away_publisher", timeout=PATIENCE_MILLISECONDS)
        expect(row).to_contain_text("Publisher away")
        expect(row).to_contain_text("Idle")


def test_who_may_only_read_sees_no_values_of_rows(chromium: Browser, monitored: MonitoredSites) -> None:
    with opened(chromium, monitored, VIEWER) as page:
        assert _publications(page) == ["fresh", "shop", "away", "orders"]
        expect(frame_of(page).locator("body")).to_contain_text("Shown to those who may edit the DAG")
    answers = [monitored.ask(it, VIEWER) for it in _PAGES]
    assert [it.status_code for it in answers] == [200, 200]
    assert not any(_SECRET in it.text for it in answers)
    assert all(_SECRET in monitored.ask(it, ADMIN).text for it in _PAGES)


@pytest.mark.parametrize("path", _PAGES)
def test_who_is_not_logged_in_is_told_so(path: str, monitored: MonitoredSites) -> None:
    answer = monitored.ask(path)
    assert answer.status_code == 401
    assert "logged out" in answer.text
    assert "orders" not in answer.text


def test_a_filter_leaves_what_fits(chromium: Browser, monitored: MonitoredSites) -> None:
    with opened(chromium, monitored, ADMIN) as page:
        frame = frame_of(page)
        frame.get_by_label("Name").fill("SHO")
        frame.get_by_role("button", name="Filter").click()
        expect(frame.locator("tr.publication")).to_have_count(1)
        assert _publications(page) == ["shop"]
        frame.get_by_role("link", name="Show all").click()
        expect(frame.locator("tr.publication")).to_have_count(4)
        frame.get_by_label("State").select_option("Failed")
        frame.get_by_role("button", name="Filter").click()
        expect(frame.locator("tr.publication")).to_have_count(1)
        frame.get_by_label("Name").fill("nothing of the kind")
        frame.get_by_role("button", name="Filter").click()
        expect(frame.locator("main")).to_contain_text("None of 4 publications fits")


def test_the_page_refreshes_itself(chromium: Browser, monitored: MonitoredSites) -> None:
    site = monitored.orders
    with opened(chromium, monitored, ADMIN) as page:
        row = frame_of(page).locator("tbody", has=page.get_by_role("link", name="orders"))
        before = row.inner_text()
        site.at_publisher("INSERT INTO item SELECT max(id) + 1, 'later' FROM item")
        site.read_log().raise_error()
        _refresh(page)
        expect(row).to_contain_text("waiting")
        deliver(site)
        _refresh(page)
        expect(row).not_to_contain_text("waiting")
        assert row.inner_text() != before


def _refresh(page: Page) -> None:
    """Let the page's own interval pass."""
    page.clock.run_for(10_000)


def test_airflows_theme_is_followed_at_once(chromium: Browser, monitored: MonitoredSites) -> None:
    with opened(chromium, monitored, ADMIN, theme="dark") as page:
        html = frame_of(page).locator("html")
        expect(html).to_have_class("dark")
        page.evaluate("localStorage.setItem('theme', 'light')")
        expect(html).to_have_class("light")


def test_a_publication_leads_to_its_page_and_that_to_its_dag(chromium: Browser, monitored: MonitoredSites) -> None:
    with opened(chromium, monitored, ADMIN) as page:
        frame_of(page).get_by_role("link", name="shop").click()
        page.wait_for_url(f"{monitored.url}/plugin/replication-monitor/monitor/publication/shop")
        frame_of(page).get_by_role("link", name="DAG in Airflow").click()
        page.wait_for_url(f"{monitored.url}/dags/shop")
        expect(page.get_by_text("shop").first).to_be_visible()
        page.go_back()
        expect(frame_of(page).get_by_role("heading", name="shop")).to_be_visible()
