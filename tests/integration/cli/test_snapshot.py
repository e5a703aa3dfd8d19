"""Snapshots at the shell: what is run, what `status` says of them, and a bar for each table in a terminal."""

from __future__ import annotations

import json
import re
from pathlib import Path

import psycopg

from conftest import DatabasesFactory
from support.shell import in_a_terminal, publication_file, typed
from support.site import execute
from support.snapshot_site import vendors_and_orders


def test_the_shell_runs_a_new_publication_with_its_snapshot(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = vendors_and_orders(databases(), tmp_path)
    articles = [{"source": it, "pre_creation_cmd": "delete"} for it in ("public.vendor", "public.orders")]
    subscription = {"name": "reporting", "connection": "subscriber"}
    file = publication_file(tmp_path, articles, subscriptions=[subscription])
    environment = site.databases.environment
    site.set_up()
    shown = typed("status", file, environment=environment).out
    assert "reporting: Uninitialized\n" in shown
    assert "  waits for the snapshot of public.vendor, public.orders\n" in shown
    # So little is copied without Spark.
    ran = typed("run", file, "--master", "spark://127.0.0.1:1", "--json", environment=environment)
    assert ran.status == 0, ran
    assert [it["rows"] for it in json.loads(ran.out)["reporting snapshot"]["snapshot"]] == [500, 2000]
    assert "snapshot for reporting: public.orders: 100%, 2,000 rows" in ran.err
    assert site.differences() == []
    assert "Idle" in typed("status", file, environment=environment).out

    site.at_subscriber("DELETE FROM orders", "UPDATE vendor SET name = 'wrong' WHERE vendor_id = 3")
    one = ("-s", "reporting", "--article", "public.orders")
    assert re.search(r"reporting\b.* 2,000 ", typed("reinitialize", file, *one, environment=environment).out)
    assert site.differences() == ["public.vendor"]
    assert typed("reinitialize", file, "-s", "reporting", environment=environment).status == 0
    assert site.differences() == []
    assert "Idle" in typed("snapshot", file, environment=environment).out
    wrong = typed("snapshot", file, "--article", "public.order", environment=environment)
    assert (wrong.status, "allowed: public.vendor, public.orders" in wrong.err) == (1, True)


_SOURCES = [{"source": "public.vendor"}, {"source": "public.orders"}]


def test_a_terminal_shows_a_bar_for_each_table(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = vendors_and_orders(databases(), tmp_path)
    subscription = {"name": "reporting", "connection": "subscriber"}
    file = publication_file(tmp_path, _SOURCES, subscriptions=[subscription])
    site.set_up()
    shown, current = "", ""
    with (
        psycopg.connect(**site.databases.subscriber.libpq_parameters("lock")) as lock,  # type: ignore[arg-type]
        in_a_terminal("run", file, environment=site.databases.environment) as terminal,
    ):
        lock.execute("SET idle_in_transaction_session_timeout = '20s'")
        lock.execute("LOCK TABLE vendor IN EXCLUSIVE MODE")
        for some in terminal:
            shown += some
            if not current and "1 of 2 tables" in shown:
                current = typed("status", file, environment=site.databases.environment).out
                lock.commit()
    lines = [it.strip() for it in re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown))]
    assert any(re.fullmatch(r"public\.orders ━+ 100% +2,000 +\S+ kB +\S+ kB/s +done", it) for it in lines), shown
    assert any(re.fullmatch(r"public\.vendor ━+ +waits", it) for it in lines), shown
    last = max(at for at, line in enumerate(lines) if line.startswith("public."))
    assert re.fullmatch(r"public\.orders ━+ 100% +2,000 +\S+ kB +\S+ kB/s +done", lines[last]), shown
    assert re.fullmatch(r"public\.vendor ━+ 100% +500 +\S+ kB +\S+ kB/s +done", lines[last - 1]), shown
    assert "Snapshot: 1 of 2 tables, 2,000 rows" in current
    ((comments, tables),) = execute(
        site.databases.distribution, "SELECT comments, snapshot FROM msdistribution_history WHERE snapshot IS NOT NULL"
    )
    assert comments.startswith("Snapshot: 2 of 2 tables, 2,500 rows")
    assert [(it["article"], it["rows"], it["share"]) for it in tables] == [
        ("public.vendor", 500, 1.0),
        ("public.orders", 2000, 1.0),
    ]
