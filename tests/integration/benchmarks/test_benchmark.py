"""The benchmark builds what it says, measures both systems, and notices where their ends are not equal."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from benchmarks.benchmark_site import Servers, opened
from benchmarks.drains import measure
from benchmarks.mariadb import beside_replication, race
from benchmarks.results import Phase
from benchmarks.workloads import Size, scenarios, vendor_scenario
from conftest import DatabaseFactory
from support.embedded_postgres import PostgresServer, embedded_bindir
from support.mariadb import installed
from support.observed import wait_for_sessions_to_end
from support.site import Rows, execute
from tranrepl.connections import Connection
from tranrepl.settings.publication import Apply

pytestmark = pytest.mark.new_sessions

_ROWS = 1000
# Rows inserted, updated and deleted.
_CHANGES = {
    "insert": (1000, 0, 0),
    "update": (0, 1000, 0),
    "delete": (0, 0, 1000),
    "hot rows": (0, 1000, 0),
    "wide rows": (100, 100, 0),
    "one transaction": (1000, 0, 0),
    "mixed 30/60/10": (300, 600, 100),
    "200 articles, filters": (600, 400, 0),
}


def test_a_backlog_is_drained_by_both_and_the_ends_are_compared(
    postgres: PostgresServer, tmp_path: Path, spark: Any
) -> None:
    servers, scenario, modes = Servers(postgres, postgres), vendor_scenario(_ROWS), tuple(Apply)
    with opened(servers, scenario, modes, tmp_path / "store", spark) as ends:
        measured = measure(ends, servers, scenario.workloads[0], 0)
        assert [(it.mode, it.phase) for it in measured] == list(product(modes, Phase))
        # The last one is the marker.
        assert {it.changes for it in measured} == {_ROWS + 1}
        assert all(min(it.ours.seconds, it.ours.probe_seconds, it.reference_seconds) > 0 for it in measured)
        assert {"read", "decode", "transform", "store"} <= measured[0].ours.phases.keys()
        assert all((it.stored_bytes or 0) > _ROWS for it in measured if it.phase is Phase.LOG_READER)

        execute(ends.subscribers(modes[-1])[0], "UPDATE vendor SET name = 'another' WHERE vendor_id = 7")
        with pytest.raises(AssertionError, match="differ in vendor"):
            ends.check_equal()


@pytest.mark.slow
@pytest.mark.skipif(not installed(), reason="MariaDB is not installed")
def test_mariadb_s_own_replication_ends_as_ours_does(postgres: PostgresServer, tmp_path: Path, spark: Any) -> None:
    with beside_replication(postgres, tmp_path) as servers:
        measured = race(servers, "statements", _ROWS, 1, tmp_path / "store", spark)
        assert [it.workload for it in measured[::4]] == [
            f"MariaDB, statements: {it}" for it in ("insert", "update", "delete")
        ]
        assert all(it.ours.seconds > 0 and it.reference_seconds > 0 for it in measured)


def test_each_workload_changes_what_it_says(database: DatabaseFactory) -> None:
    found = {}
    for scenario in scenarios(Size(_ROWS, 0, 1), embedded_bindir()):
        if not {it.name for it in scenario.workloads} & _CHANGES.keys():
            continue
        publisher = database("publisher")
        scenario.create(publisher)
        for workload in scenario.workloads:
            before = _changed(publisher)
            workload.build(publisher)
            found[workload.name] = tuple(now - then for now, then in zip(_changed(publisher), before, strict=True))
    assert found == _CHANGES


def _changed(publisher: Connection) -> tuple[int, ...]:
    wait_for_sessions_to_end(publisher)
    counted: Rows = execute(
        publisher, "SELECT sum(n_tup_ins)::int, sum(n_tup_upd)::int, sum(n_tup_del)::int FROM pg_stat_user_tables"
    )
    return tuple(counted[0])
