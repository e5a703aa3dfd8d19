"""Replication Monitor in Debian's Chromium: how it is opened, and the contrast of what it shows."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from playwright.sync_api import Browser, FrameLocator, Page, TimeoutError as NotInTime, expect, sync_playwright

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


def open_tab(page: Page) -> FrameLocator:
    """Open the tab of a DAG or of a run. A click is lost where Airflow draws its tabs anew in the midst of it."""
    tab = page.get_by_role("link", name="Replication", exact=True)
    frame = page.locator('iframe[title="Replication"]')
    with suppress(NotInTime):
        tab.click()
        frame.wait_for(timeout=PATIENCE_MILLISECONDS / 3)
        return frame.content_frame
    tab.click()
    return frame.content_frame


@contextmanager
def started_chromium() -> Iterator[Browser]:
    """Start it. The test is skipped where there is none."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("needs Chromium. On Debian, as root: apt-get install chromium")
    # Chromium refuses its sandbox to root, and containers their /dev/shm.
    arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=program, args=arguments) as it:
        yield it


_FAINT = """() => {
  const channels = (text) => (text.match(/[0-9.]+/g) || []).map(Number);
  const luminance = (rgb) => {
    const [r, g, b] = rgb.slice(0, 3).map((it) => it / 255)
      .map((it) => it <= 0.04045 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const isSeen = (rgb) => rgb.length === 3 || rgb[3] > 0;
  const behind = (element) => {
    for (let it = element; it; it = it.parentElement) {
      const rgb = channels(getComputedStyle(it).backgroundColor);
      if (rgb.length && isSeen(rgb)) return rgb;
    }
    return [255, 255, 255];
  };
  const faint = new Set();
  const check = (element, colour, ground, least) => {
    const [light, dark] = [luminance(colour), luminance(ground)].sort((a, b) => b - a);
    const ratio = (light + 0.05) / (dark + 0.05);
    const name = `${element.tagName} .${element.getAttribute('class')}`;
    if (ratio < least) faint.add(`${name} ${colour} on ${ground}: ${ratio.toFixed(2)}`);
  };
  let checked = 0;
  for (const element of document.body.querySelectorAll('*')) {
    const style = getComputedStyle(element);
    if (!element.getClientRects().length || element.disabled) continue;
    const hasText = [...element.childNodes].some((it) => it.nodeType === Node.TEXT_NODE && it.data.trim());
    if (hasText && element.tagName !== 'title') {
      const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.6 && style.fontWeight >= 700);
      check(element, channels(element.tagName === 'text' ? style.fill : style.color), behind(element), large ? 3 : 4.5);
      checked += 1;
    }
    if (['INPUT', 'SELECT', 'BUTTON'].includes(element.tagName)) {
      check(element, channels(style.borderTopColor), behind(element.parentElement), 3);
    }
    const drawn = element.matches('svg :is(rect, polyline, path):not(.hover)');
    const colours = drawn ? [style.fill, style.stroke].map(channels) : [];
    for (const colour of colours.filter((it) => it.length && isSeen(it))) {
      // A mark's outline is of the ground's colour, to part it from what it lies on.
      if (String(colour) !== String(behind(element))) check(element, colour, behind(element), 3);
    }
  }
  return [checked, [...faint]];
}"""


def faint_parts(page: Page) -> list[str]:
    """Return what has less contrast than AA asks for: 4.5 for text, 3 for large text, drawings and edges of fields."""
    checked, faint = page.evaluate(_FAINT)
    assert checked > 10, "the page is empty"
    return sorted(faint)
