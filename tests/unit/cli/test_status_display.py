"""The table with which `status` begins."""

from __future__ import annotations

from datetime import UTC, datetime
from io import StringIO

import pytest
from rich.console import Console

from tranrepl.admin.status import LogReaderStatus, PublicationStatus, SubscriptionStatus
from tranrepl.admin.status.report import LastRun
from tranrepl.cli import status_display


@pytest.mark.parametrize("name", ["branch_office", "a_subscription_of_thirty_chars"])
def test_names_are_not_broken_where_what_is_behind_them_may_be(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    out = StringIO()
    monkeypatch.setattr(status_display, "out", Console(file=out, width=80, color_system=None))
    ended = LastRun(status="succeed", time=datetime.now(UTC), comments="", acknowledged=False)
    reader = LogReaderStatus(slot="ready", unread_log_bytes=1_200_000, last_run=ended)
    subscription = SubscriptionStatus(subscription=name, undelivered_commands=2, last_run=ended)
    found = PublicationStatus(publication="shop", log_reader=reader, subscriptions=[subscription], wrong=[])
    status_display.show_status(found)
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert any(it.startswith(f"{name}  Succeeded") for it in lines), lines
    assert "up to date then; 1.2 MB of log since" in " ".join(out.getvalue().split()), lines
