"""Two deliveries of one subscription at once: one applies, the other one ends with nothing done."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.command_history import Column, History, seqno
from support.subscribers import KEY, Site
from tranrepl.errors import FencedError, TransientError
from tranrepl.model.commands import FIRST_XACT_SEQNO
from tranrepl.subscriber.applier_options import ApplierOptions
from tranrepl.subscriber.base.applier import Applier
from tranrepl.subscriber.batching.steps import SerialStep
from tranrepl.subscriber.registry import dialect_of

_IMPATIENT = ApplierOptions(lock_timeout_seconds=1)
_LOCK_TIMEOUTS = {"postgres": "55P03", "mariadb": "1205", "mssql": "1222"}


@pytest.mark.parametrize("kind", ["postgres statements", "mariadb statements", "mssql statements"])
def test_of_two_deliveries_at_once_one_applies(kind: str, make_site: Callable[[str], Site]) -> None:
    site = make_site(kind)
    site.article("vendor", [Column("id", "integer", key=1)])
    dialect = dialect_of(site.connection)
    with (
        dialect.applier(site.connection, KEY, site.articles, _IMPATIENT) as first,
        dialect.applier(site.connection, KEY, site.articles, _IMPATIENT) as second,
    ):
        first.begin(FIRST_XACT_SEQNO)
        # Who only looks does not wait.
        assert site.watermark() == FIRST_XACT_SEQNO
        _assert_waits_in_vain(second, _LOCK_TIMEOUTS[site.kind.database])
        first.commit(seqno(1))
        with pytest.raises(FencedError):
            second.begin(FIRST_XACT_SEQNO)
        second.rollback()
        second.begin(seqno(1))
        second.commit(seqno(2))
    assert site.watermark() == seqno(2)


def test_the_victim_of_a_deadlock_at_sql_server_may_try_again(make_site: Callable[[str], Site]) -> None:
    site = make_site("mssql statements")
    vendor = site.article("vendor", [Column("id", "integer", key=1), Column("name")])
    site.execute("insert into vendor values (1, 'a'), (2, 'a')")
    first, second = (SerialStep(History().update(vendor, [it, "a"], [it, "b"]).table()) for it in "12")
    with (
        ThreadPoolExecutor(1) as threads,
        dialect_of(site.connection).applier(site.connection, KEY, site.articles) as applier,
    ):
        applier.begin(FIRST_XACT_SEQNO)
        applier.apply([first])
        other = threads.submit(
            site.execute,
            "set deadlock_priority high",
            "begin transaction",
            "update vendor set name = 'c' where id = 2",
            "update vendor set name = 'c' where id = 1",
            "commit",
        )
        # A server looks for a deadlock after a session has waited for a while: let that be the delivery's.
        with pytest.raises(TimeoutError):
            other.result(3)
        with pytest.raises(TransientError) as caught:
            applier.apply([second])
        applier.rollback()
        other.result(60)
    assert caught.value.report.number == "1205"
    assert site.rows("vendor") == [(1, "c"), (2, "c")]


def _assert_waits_in_vain(applier: Applier, code: str) -> None:
    with pytest.raises(TransientError) as caught:
        applier.begin(FIRST_XACT_SEQNO)
    assert caught.value.report.database_code == code
    applier.rollback()
