"""A publication's page in Replication Monitor, as people with and without rights use it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, FrameLocator, Page, expect

from support.monitor_pages import faint_parts, open_tab
from support.monitored_sites import ADMIN, SECRET_ID, VIEWER, MonitoredSites, deliver

pytestmark = pytest.mark.scheduler

_PATIENCE_MILLISECONDS = 30_000
_LINE = re.compile(r"^\d+\.\d,\d+\.\d \d+\.\d,\d+\.\d")
_NARROW = {"width": 360, "height": 740}
_WIDE = {"width": 1280, "height": 900}
_PARTS = ["State and charts", "Errors", "History", "Articles", "Snapshots", "Validations", "Schema changes", "Settings"]
_PATHS = ("", "/history", "/articles", "/snapshots", "/validations", "/schema-changes", "/errors", "/settings")
_ADMINISTRATION = ("/commands?failing=reporting", "/actions", "/skip/reporting")


@contextmanager
def _opened(
    chromium: Browser,
    monitored: MonitoredSites,
    path: str,
    user: str = ADMIN,
    theme: str = "light",
    viewport: dict[str, int] = _WIDE,
) -> Iterator[Page]:
    """Open a page of the monitor, as a user who is logged in, far east of Greenwich."""
    with chromium.new_context(viewport=viewport, timezone_id="Asia/Tokyo") as context:  # type: ignore[arg-type]
        context.set_default_timeout(_PATIENCE_MILLISECONDS)
        context.add_init_script(f"localStorage.theme ??= '{theme}'")
        context.add_cookies([{"name": "_token", "value": monitored.token(user), "url": monitored.url}])
        page = context.new_page()
        page.goto(f"{monitored.url}/{path}")
        yield page


def _frame(page: Page, name: str = "Replication Monitor") -> FrameLocator:
    return page.frame_locator(f'iframe[title="{name}"]')


def test_the_failing_command_is_found_from_the_overview(chromium: Browser, monitored: MonitoredSites) -> None:
    with _opened(chromium, monitored, "plugin/replication-monitor") as page:
        frame = _frame(page)
        frame.get_by_role("link", name="shop").click()
        expect(frame.get_by_role("heading", name="shop")).to_be_visible()
        expect(frame.locator("header")).to_contain_text("1 subscription: Failed")
        frame.get_by_role("link", name="Errors").click()
        page.wait_for_url("**/monitor/publication/shop/errors")
        main = frame.locator("main")
        for text in ("error 20598", "public.item", f"id = {SECRET_ID}", "sp_MSupd", "tranrepl skip"):
            expect(main).to_contain_text(text)


def test_the_keyboard_leads_through_all_parts(chromium: Browser, monitored: MonitoredSites) -> None:
    with _opened(chromium, monitored, "monitor/publication/orders") as page:
        for title in _PARTS[1:]:
            page.get_by_role("navigation").get_by_role("link", name=title).focus()
            page.keyboard.press("Enter")
            expect(page.locator("nav a[aria-current]")).to_have_text(title)
            expect(page).to_have_title(f"orders: {title} \u2013 Replication Monitor")


def test_charts_show_what_was_delivered_in_the_time_one_picks(chromium: Browser, monitored: MonitoredSites) -> None:
    site = monitored.orders
    site.at_publisher("INSERT INTO item SELECT max(id) + 1, 'later' FROM item")
    deliver(site)
    with _opened(chromium, monitored, "monitor/publication/orders?range=1h") as page:
        expect(page.get_by_role("img", name="Latency, from").locator("rect.p50").first).to_be_visible()
        for name, drawn in (("Latency by leg", "polyline.leg-delivered"), ("Throughput", "polyline.delivered")):
            line = page.get_by_role("img", name=name).locator(drawn).first
            # One that is level has no height, and Playwright takes it for hidden.
            expect(line).to_have_attribute("points", _LINE)
            expect(line).to_have_css("stroke-width", "2px")
        page.get_by_text("The charts' values as a table").click()
        values = page.get_by_role("region", name="The charts' values").locator("tbody tr")
        expect(values.first).to_contain_text("s")
        written, meant = values.first.locator("time"), values.first.locator("time").get_attribute("datetime") or ""
        assert written.inner_text() == f"{datetime.fromisoformat(meant).astimezone(UTC):%Y-%m-%d %H:%M:%S}"
        assert page.get_by_text("times are in UTC").count() == 1
        for link, words in (("7d", "7 days"), ("30d", "30 days")):
            page.get_by_role("link", name=link).click()
            expect(page.get_by_role("img", name=f"over the last {words}").first).to_be_visible()
        page.get_by_role("combobox", name="Subscription").select_option("reporting")
        page.get_by_role("button", name="Show").click()
        expect(page.get_by_role("heading", name="Subscription reporting, the last 30 days")).to_be_visible()


@pytest.mark.slow
def test_what_is_opened_stays_open_when_the_page_refreshes(chromium: Browser, monitored: MonitoredSites) -> None:
    with _opened(chromium, monitored, "monitor/publication/orders/settings") as page:
        details = page.locator("details").first
        details.locator("summary").click()
        as_of = page.locator("time.exact").get_attribute("datetime") or ""
        page.locator("h1").click()
        expect(page.locator("time.exact")).not_to_have_attribute("datetime", as_of, timeout=_PATIENCE_MILLISECONDS)
        expect(details).to_have_attribute("open", "")


@pytest.mark.slow
def test_the_page_is_a_tab_of_the_publications_dag(chromium: Browser, monitored: MonitoredSites) -> None:
    with _opened(chromium, monitored, "dags/shop") as page:
        frame = open_tab(page)
        expect(frame.get_by_role("heading", name="shop")).to_be_visible()
        page.goto(f"{monitored.url}/dags/shop_validate/plugin/replication")
        expect(frame.locator("nav a[aria-current]")).to_have_text("Validations")
        page.goto(f"{monitored.url}/dags/distribution_cleanup/plugin/replication")
        expect(frame.locator("main")).to_contain_text("is not the DAG of a publication")


def test_what_a_run_did_is_a_tab_of_the_run(chromium: Browser, monitored: MonitoredSites) -> None:
    run_id = monitored.trigger("orders_validate")
    run = f"dags/orders_validate/runs/{quote(run_id, safe='')}"
    with _opened(chromium, monitored, f"{run}/plugin/replication-run") as page:
        frame = _frame(page, "Replication")
        expect(frame.get_by_role("heading", name=f"Run {run_id}")).to_be_visible()
        expect(frame.locator("main")).to_contain_text("none of its tasks has begun")


def test_who_may_only_read_sees_no_values_of_rows_in_any_part(chromium: Browser, monitored: MonitoredSites) -> None:
    with _opened(chromium, monitored, "monitor/publication/shop/errors", VIEWER) as page:
        expect(page.locator("main")).to_contain_text("Shown to those who may edit the DAG")
        for path in _PATHS:
            page.goto(f"{monitored.url}/monitor/publication/shop{path}")
            expect(page.get_by_role("heading", name="shop")).to_be_visible()
            assert str(SECRET_ID) not in page.content()


@pytest.mark.parametrize("path", ["publication/orders", "api/publication/orders", "api/publication/orders/errors"])
def test_who_is_not_logged_in_sees_no_part(path: str, monitored: MonitoredSites) -> None:
    answer = monitored.ask(path)
    assert (answer.status_code, "logged out" in answer.text) == (401, True)


def test_a_dag_that_is_not_there_is_refused(monitored: MonitoredSites) -> None:
    for path in ("publication/nothing", "api/publication/nothing", "api/publication/nothing/errors"):
        assert monitored.ask(path, ADMIN).status_code == 403


def test_a_publisher_without_an_answer_holds_up_no_part(chromium: Browser, monitored: MonitoredSites) -> None:
    with _opened(chromium, monitored, "monitor/publication/away") as page:
        expect(page.locator("header")).to_contain_text(
            "Publisher: connection away_publisher", timeout=_PATIENCE_MILLISECONDS
        )
        expect(page.get_by_role("region", name="Subscriptions", exact=True)).to_contain_text("Idle")


def test_each_part_says_what_to_do_where_nothing_is_set_up(chromium: Browser, monitored: MonitoredSites) -> None:
    with _opened(chromium, monitored, "monitor/publication/fresh") as page:
        for path in _PATHS:
            page.goto(f"{monitored.url}/monitor/publication/fresh{path}")
            expect(page.locator("main")).to_contain_text("tranrepl setup FILE")


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_narrow_window_scrolls_tables_alone_and_all_is_readable(
    chromium: Browser, monitored: MonitoredSites, theme: str
) -> None:
    with _opened(chromium, monitored, "monitor/publication/shop", ADMIN, theme, _NARROW) as page:
        expect(page.locator("html")).to_have_class(theme)
        shop = f"{monitored.url}/monitor/publication/shop"
        for path in (f"{monitored.url}/monitor/", *(f"{shop}{it}" for it in (*_PATHS, *_ADMINISTRATION))):
            page.goto(path)
            # The page is laid out once more when its script has written the times.
            page.wait_for_function(f"document.documentElement.scrollWidth <= {_NARROW['width']}")
            assert faint_parts(page) == [], path
