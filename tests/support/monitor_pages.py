"""Replication Monitor in a browser: opened from Airflow's menu, and its frame."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, FrameLocator, Page, expect

from support.monitored_sites import MonitoredSites

PATIENCE_MILLISECONDS = 30_000


@contextmanager
def opened(chromium: Browser, monitored: MonitoredSites, user: str, theme: str = "light") -> Iterator[Page]:
    """Open the page from Airflow's menu, as a user who is logged in."""
    with chromium.new_context(viewport={"width": 1280, "height": 800}) as context:
        context.set_default_timeout(PATIENCE_MILLISECONDS)
        context.add_init_script(f"localStorage.theme ??= '{theme}'")
        context.add_cookies([{"name": "_token", "value": monitored.token(user), "url": monitored.url}])
        page = context.new_page()
        page.clock.install()
        page.goto(f"{monitored.url}/plugin/replication-monitor")
        expect(frame_of(page).locator("tbody").first).to_be_visible(timeout=PATIENCE_MILLISECONDS)
        yield page


def frame_of(page: Page) -> FrameLocator:
    """Return the monitor's own page, within Airflow's."""
    return page.frame_locator('iframe[title="Replication Monitor"]')
