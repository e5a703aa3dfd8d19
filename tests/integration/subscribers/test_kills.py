"""Deliveries killed by SIGKILL before and after every change of state: run again, every change is made once.

PostgreSQL's are in `end_to_end/test_failpoints.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.child_job import DISTRIBUTION, LOG_READER, ChildJob
from support.observed import AUDIT, ITEM, make_transactions
from support.site import Site
from support.subscribers import Site as PlainSite
from tranrepl.failpoint import Failpoint

_OF_ONE_CONNECTION = (
    Failpoint.BEGIN,
    Failpoint.APPLIED,
    Failpoint.BEFORE_COMMIT,
    Failpoint.WATERMARK_SET,
    Failpoint.AFTER_COMMIT,
)
_OF_STREAMS = (
    f"{Failpoint.BEGIN}@1",
    f"{Failpoint.APPLIED}@1",
    f"{Failpoint.VOTED}@0",
    f"{Failpoint.STREAM_COMMITTED}@1",
    f"{Failpoint.BEFORE_COMMIT}@0",
    f"{Failpoint.AFTER_COMMIT}@0",
)
_COLUMNS = "operation varchar(6), id bigint, xact int"
_AUDITS = {
    "mariadb": (
        f"CREATE TABLE audit (seq bigint AUTO_INCREMENT PRIMARY KEY, {_COLUMNS})",
        *(
            f"CREATE TRIGGER audit_{event} AFTER {event} ON item FOR EACH ROW "
            f"INSERT INTO audit (operation, id, xact) VALUES ('{event}', {row}.id, {row}.xact)"
            for event, row in (("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD"))
        ),
    ),
    "mssql": (
        f"create table audit (seq bigint identity primary key, {_COLUMNS})",
        """create trigger audit_item on item after insert, update, delete as
        insert into audit (operation, id, xact)
        select case when d.id is null then 'INSERT' when i.id is null then 'DELETE' else 'UPDATE' end,
        coalesce(i.id, d.id), coalesce(i.xact, d.xact) from inserted i full join deleted d on i.id = d.id""",
    ),
}
"""Every change of an item in the order made, as the Publisher's own audit has it."""


@pytest.fixture(params=["mariadb procedures", "mssql procedures", "mssql statements"])
def plain(request: pytest.FixtureRequest, make_site: Callable[[str], PlainSite]) -> PlainSite:
    return make_site(str(request.param))


def _audited(plain: PlainSite, databases: DatabasesFactory, store: Path, step: int, **settings: object) -> Site:
    article = {"source": "public.item", "destination": f"{plain.schema}.item", **plain.kind.commands}
    subscription = {"name": "reporting", "connection": "subscriber", "commit_batch_size": step, **settings}
    ends = replace(databases(), subscriber=plain.connection)
    site = Site(ends, store, [article], subscriptions=[subscription])
    site.at_publisher(ITEM)
    site.set_up()
    site.at_publisher(AUDIT)
    plain.execute(*_AUDITS[plain.kind.database])
    make_transactions(site, 70)
    LOG_READER(site).raise_error()
    return site


def test_a_delivery_killed_anywhere_makes_every_change_once(
    plain: PlainSite, databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _audited(plain, databases, tmp_path / "store", step=10)
    for failpoint in _OF_ONE_CONNECTION:
        assert ChildJob(DISTRIBUTION, site, f"{failpoint}@0:2").killed(), failpoint
    DISTRIBUTION(site).raise_error()
    audit = "SELECT operation, id, xact FROM audit ORDER BY seq"
    assert plain.execute(audit) == site.at_publisher(audit)
    assert plain.rows("item") == site.at_publisher("SELECT * FROM item ORDER BY id")


@pytest.mark.slow
def test_streams_killed_anywhere_make_every_change_once(
    plain: PlainSite, databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _audited(plain, databases, tmp_path / "store", step=5, subscription_streams=2)
    for failpoint in _OF_STREAMS:
        assert ChildJob(DISTRIBUTION, site, f"{failpoint}:2").killed(), failpoint
    DISTRIBUTION(site).raise_error()
    audit = "SELECT operation, id, xact FROM audit"
    assert sorted(plain.execute(audit)) == sorted(site.at_publisher(audit))
    assert plain.rows("item") == site.at_publisher("SELECT * FROM item ORDER BY id")
