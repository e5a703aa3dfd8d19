"""What an administrator does in Replication Monitor: finds what fails, skips it, reinitializes."""

from __future__ import annotations

import re
from collections.abc import Mapping

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from support.monitor_pages import frame_of, opened
from support.monitored_sites import ADMIN, SECRET_ID, VIEWER, MonitoredSites, fail_again
from support.site import Site
from tranrepl.admin.skip_and_retry import parse_xact_seqno, skip_transaction

pytestmark = pytest.mark.scheduler

_SECRET = str(SECRET_ID)

_FORM = '<form method="post" action="{}"><button>Win</button></form>'
_PLAIN = {"method": "POST", "mode": "no-cors", "credentials": "include", "body": "{}"}
_WITH_THE_HEADER = {
    "method": "POST",
    "credentials": "include",
    "body": "{}",
    "headers": {"X-Replication-Monitor": "1", "Content-Type": "application/json"},
}
_SENT = "([address, options]) => fetch(address, options).then((it) => it.type, (error) => error.name)"


def _open(page: Page, publication: str, part: str) -> None:
    """Go to a part of a publication's page, by the overview's link."""
    rows = frame_of(page).locator("tbody", has=page.get_by_role("link", name=publication))
    rows.get_by_role("link", name=part, exact=True).click()


def _do(conf: Mapping[str, str], site: Site) -> None:
    """Do what the run waits for, in the place of its task."""
    assert conf["action"] == "skip"
    skip_transaction(site.topology, conf["subscription"], parse_xact_seqno(conf["xact_seqno"]))


def test_a_failing_transaction_is_found_skipped_and_delivery_recovers(
    chromium: Browser, monitored: MonitoredSites
) -> None:
    with opened(chromium, monitored, ADMIN) as page:
        frame = frame_of(page)
        _open(page, "shop", "the failing command")
        expect(frame.locator("tr.marked")).to_contain_text(_SECRET)
        seqno = frame.locator("th code").first.inner_text()
        assert re.fullmatch("0x[0-9a-f]{16}", seqno)

        frame.get_by_label("Key").fill(_SECRET)
        frame.get_by_role("button", name="Show").click()
        expect(frame.locator("table")).to_contain_text("1 INSERT public.item")
        assert _SECRET not in page.url

        frame.get_by_role("link", name="Actions").click()
        frame.get_by_role("link", name="Skip the transaction…").click()
        expect(frame.locator("main")).to_contain_text("1 UPDATE public.item")
        expect(frame.locator("table.commands")).to_contain_text(_SECRET)
        typed = frame.get_by_label("Type the transaction")
        typed.fill("0x0000000000000010")
        frame.get_by_role("button", name="Skip it").click()
        expect(frame.locator("output")).to_contain_text(f"is not the transaction that would be skipped, {seqno}")
        typed.fill(seqno)
        frame.get_by_role("button", name="Skip it").click()
        expect(frame.locator("output")).to_contain_text("shop_administer: waits for the scheduler")

        try:
            _do(monitored.triggered("shop_administer"), monitored.shop)
            monitored.shop.deliver().raise_error()
            frame.get_by_role("link", name="All publications").click()
            row = frame.locator("tbody", has=page.get_by_role("link", name="shop"))
            expect(row).to_contain_text("Idle")
            expect(row).to_contain_text("skipped")
            expect(row).not_to_contain_text(_SECRET)
        finally:
            fail_again(monitored.shop)


def test_one_article_is_reinitialized_after_its_form_said_what_that_does(
    chromium: Browser, monitored: MonitoredSites
) -> None:
    with opened(chromium, monitored, ADMIN, theme="dark") as page:
        frame = frame_of(page)
        _open(page, "orders", "actions")
        expect(frame.locator("html")).to_have_class("dark")
        form = frame.locator("#reinitialize")
        expect(form.get_by_role("button")).to_be_hidden()
        form.locator("summary").click()
        expect(form).to_contain_text("Copies the Publisher's rows again")
        form.get_by_role("button", name="Reinitialize").click()
        expect(form.locator("output")).to_be_hidden()
        form.get_by_label("Subscriptions").select_option("reporting")
        form.get_by_label("Articles").select_option("public.item")
        form.get_by_role("button", name="Reinitialize").click()
        expect(form.locator("output")).to_contain_text("orders_reinitialize: waits for the scheduler")
        expect(frame.locator("main")).not_to_contain_text("No run was triggered by hand yet")
        assert monitored.triggered("orders_reinitialize") == {
            "subscriptions": ["reporting"],
            "articles": ["public.item"],
        }
        form.locator("output a").click()
        page.wait_for_url(re.compile("/dags/orders_reinitialize/runs/"))


def test_a_page_of_another_origin_triggers_nothing(chromium: Browser, monitored: MonitoredSites) -> None:
    # Another port of the same host: the browser sends the cookie along.
    elsewhere = "http://127.0.0.1:9/"
    address = f"{monitored.url}/monitor/api/publication/away/actions/run"
    with opened(chromium, monitored, ADMIN) as page:
        page.route(f"{elsewhere}**", lambda it: it.fulfill(content_type="text/html", body=_FORM.format(address)))
        page.goto(elsewhere)
        for options in (_PLAIN, _WITH_THE_HEADER):
            assert page.evaluate(_SENT, [address, options]) in ("opaque", "TypeError")
        with page.expect_response(address) as answered:
            page.get_by_role("button").click()
        assert answered.value.status == 403
    headers = {"Authorization": f"Bearer {monitored.token(ADMIN)}"}
    runs = httpx.get(f"{monitored.url}/api/v2/dags/away/dagRuns", headers=headers).raise_for_status().json()
    assert runs["total_entries"] == 0


def test_who_may_only_read_sees_neither_rows_nor_buttons(chromium: Browser, monitored: MonitoredSites) -> None:
    with opened(chromium, monitored, VIEWER) as page:
        frame = frame_of(page)
        _open(page, "shop", "the failing command")
        expect(frame.get_by_role("region", name="Stored commands")).to_contain_text("1 UPDATE public.item")
        expect(frame.locator("body")).not_to_contain_text(_SECRET)
        frame.get_by_role("link", name="Actions").click()
        expect(frame.locator("main")).to_contain_text("You may trigger none")
        expect(frame.get_by_role("button")).to_have_count(0)
    headers = {"Authorization": f"Bearer {monitored.token(VIEWER)}", "X-Replication-Monitor": "1"}
    refused = httpx.post(f"{monitored.url}/monitor/api/publication/shop/actions/run", headers=headers, json={})
    assert refused.status_code == 403
