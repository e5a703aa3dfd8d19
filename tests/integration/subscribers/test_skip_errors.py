"""skip_errors leaves out the failing command alone, and procedures' warnings do not stop a delivery."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from support.command_history import Column, History, seqno
from support.subscribers import KEY, Site
from tranrepl.distribution.delivery import Delivery, deliver
from tranrepl.distribution.recording import SkippedCommands
from tranrepl.errors import ErrorKind, ErrorReport
from tranrepl.jobs.results import JobResult
from tranrepl.model.commands import FIRST_XACT_SEQNO
from tranrepl.subscriber.applier_options import ApplierOptions
from tranrepl.subscriber.batching.commit_batches import CommitLimits

VENDOR = (Column("id", "integer", key=1), Column("name", "character varying(10)"))


@dataclass(slots=True)
class _Recorded:
    """Where skipped commands go, without a distribution database."""

    reports: list[ErrorReport] = field(default_factory=list)

    def record(self, errors: Sequence[ErrorReport]) -> None:
        self.reports.extend(errors)


def _deliver(site: Site, history: History, skip: set[int], recorded: _Recorded | None = None) -> JobResult:
    delivery = Delivery(
        site.connection,
        KEY,
        site.articles,
        FIRST_XACT_SEQNO,
        CommitLimits(1000, 10_000),
        ApplierOptions(skip_errors=frozenset(map(str, skip))),
        cast("SkippedCommands", recorded or _Recorded()),
    )
    return deliver(delivery, history.table().to_batches(max_chunksize=site.chunk))


def _is_sqlite(site: Site) -> bool:
    return site.kind.database == "sqlite"


def test_only_the_failing_commands_are_skipped(plain_site: Site) -> None:
    """Skip a missing row and a row that is there already; apply the rest of their transactions and what follows."""
    site, recorded = plain_site, _Recorded()
    vendor = site.article("vendor", VENDOR)
    site.execute("INSERT INTO vendor VALUES (5, 'mine')")
    history = History()
    for at in range(1, 4):
        history.insert(vendor, [str(at), "new"])
    history.update(vendor, ["77", "gone"], ["77", "lost"])
    history.insert(vendor, ["4", "new"])
    history.transaction().delete(vendor, ["78", "gone"])
    history.insert(vendor, ["6", "late"])
    skip, skipped = {20598}, 2
    if not _is_sqlite(site):
        history.transaction().insert(vendor, ["5", "theirs"]).insert(vendor, ["7", "last"])
        skip, skipped = {20598, 2601, 2627}, 3
    result = _deliver(site, history, skip, recorded)
    assert (result.error, result.skipped) == (None, skipped)
    assert site.watermark() == seqno(history.xact)
    expected = [(1, "new"), (2, "new"), (3, "new"), (4, "new"), (5, "mine"), (6, "late"), (7, "last")]
    assert site.rows("vendor") == (expected[:-1] if _is_sqlite(site) else expected)
    told = [(it.kind, it.xact_seqno, it.command_id, it.article, it.key) for it in recorded.reports]
    assert (
        told
        == [
            (ErrorKind.DATA, seqno(1).hex(), 4, "public.vendor", "id = 77"),
            (ErrorKind.DATA, seqno(2).hex(), 1, "public.vendor", "id = 78"),
            (ErrorKind.DATA, seqno(3).hex(), 1, "public.vendor", "id = 5"),
        ][:skipped]
    )
    assert all(it.command and "vendor" in it.command for it in recorded.reports)


def test_an_error_that_is_not_named_stops_the_delivery(plain_site: Site) -> None:
    site, recorded = plain_site, _Recorded()
    vendor = site.article("vendor", VENDOR)
    history = History().insert(vendor, ["1", "one"])
    history.transaction().update(vendor, ["77", "gone"], ["77", "lost"])
    result = _deliver(site, history, {2601}, recorded)
    assert result.error is not None
    assert (result.error.number, result.error.key, result.commands) == ("20598", "id = 77", 0)
    assert (recorded.reports, site.rows("vendor")) == ([], [])


def test_a_value_that_its_type_does_not_take_can_be_skipped(plain_site: Site) -> None:
    site, recorded = plain_site, _Recorded()
    if _is_sqlite(site):
        pytest.skip("any value fits there")
    vendor = site.article("vendor", VENDOR)
    history = History().insert(vendor, ["1", "one"])
    history.insert(vendor, ["2", "far too long for ten"])
    history.insert(vendor, ["3", "three"])
    assert _deliver(site, history, set()).error is not None
    result = _deliver(site, history, {8152}, recorded)
    assert (result.error, result.skipped) == (None, 1)
    assert site.rows("vendor") == [(1, "one"), (3, "three")]
    assert [it.key for it in recorded.reports] == ["id = 2"]


def test_what_cannot_be_recorded_is_not_skipped(plain_site: Site) -> None:
    class _Broken(_Recorded):
        def record(self, errors: Sequence[ErrorReport]) -> None:
            raise ErrorReport(kind=ErrorKind.TRANSIENT, message=f"{len(errors)} not recorded").to_exception()

    site = plain_site
    vendor = site.article("vendor", VENDOR)
    history = History().insert(vendor, ["1", "one"]).update(vendor, ["77", "gone"], ["77", "lost"])
    result = _deliver(site, history, {20598}, _Broken())
    assert result.error is not None
    assert (result.error.message, site.rows("vendor"), site.watermark()) == ("1 not recorded", [], FIRST_XACT_SEQNO)


def test_warnings_of_a_custom_procedure_are_told_and_do_not_stop(plain_site: Site) -> None:
    site = plain_site
    if site.kind.database not in _WARNING or not site.kind.procedures:
        pytest.skip("no procedures there, or the tests of messages have it")
    vendor = site.article("vendor", VENDOR, ins_cmd="CALL warn_of_name")
    site.execute(_WARNING[site.kind.database])
    history = History().insert(vendor, ["1", "one"]).insert(vendor, ["2", "two"])
    result = _deliver(site, history, set())
    assert (result.error, result.commands) == (None, 2)
    assert any("a doubtful name" in notice and notice.lower().startswith("warning") for notice in result.notices)
    assert len(result.notices) == len(set(result.notices))
    assert site.rows("vendor") == [(1, "one"), (2, "two")]


_WARNING = {
    "postgres": "CREATE PROCEDURE warn_of_name(c1 integer, c2 text) LANGUAGE plpgsql AS $$ BEGIN "
    "RAISE WARNING 'a doubtful name'; INSERT INTO vendor VALUES (c1, c2); END $$",
    "mariadb": "CREATE PROCEDURE warn_of_name(c1 integer, c2 varchar(40)) BEGIN "
    "INSERT INTO vendor VALUES (c1, c2); SIGNAL SQLSTATE '01000' SET MESSAGE_TEXT = 'a doubtful name'; END",
}


def test_skipping_in_pieces_keeps_each_commands_place(plain_site: Site) -> None:
    # Commands arrive a few at a time; the one that is skipped is named by its own place.
    site, recorded = replace(plain_site, chunk=2), _Recorded()
    vendor = site.article("vendor", VENDOR)
    history = History()
    for at in range(1, 12):
        history.insert(vendor, [str(at), "x"])
        history.update(vendor, [str(at + 100), "x"], [str(at + 100), "y"])
    result = _deliver(site, history, {20598}, recorded)
    assert (result.error, result.skipped, len(site.rows("vendor"))) == (None, 11, 11)
    assert [(it.command_id, it.key) for it in recorded.reports] == [(2 * at, f"id = {at + 100}") for at in range(1, 12)]
