"""SQL Server as a Subscriber: in bulk, and many commands a round trip, beside one call a round trip.

The server is the one that TRANREPL_TEST_MSSQL names, as in mssql://sa:password@127.0.0.1:1433/master. Commands are
delivered in this process, by procedures; the rows are those of the other benchmarks' Vendor.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from unittest.mock import patch
from uuid import uuid4

from rich.console import Console
from rich.table import Table

from support.command_history import Column, History, Image
from support.progress import step
from support.subscribers import Kind, Site, mssql_execute
from tranrepl.connections import Connection, from_environment
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import FIRST_XACT_SEQNO
from tranrepl.settings.publication import Apply
from tranrepl.subscriber.applier_options import ApplierOptions
from tranrepl.subscriber.mssql.database import SqlServer

VARIABLE = "TRANREPL_TEST_MSSQL"
_TRANSACTION_ROWS = 100
_COLUMNS = (
    Column("vendor_id", "integer", key=1),
    Column("account_number", "character varying(15)"),
    Column("name", "character varying(50)"),
    Column("credit_rating", "smallint"),
    Column("preferred_vendor_status", "boolean"),
    Column("active_flag", "boolean"),
    Column("purchasing_web_service_url", "character varying(1024)"),
    Column("modified_date", "timestamp without time zone"),
)


@dataclass(frozen=True, slots=True)
class _Way:
    name: str
    apply: Apply
    settings: Callable[[], AbstractContextManager[object]] = nullcontext


_ALONE = _Way("one call a round trip", Apply.SERIAL, lambda: patch.object(SqlServer, "statements_together", 1))
_WAYS = (_ALONE, _Way("apply: serial", Apply.SERIAL), _Way("apply: auto", Apply.AUTO))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mssql", description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000, help="rows to insert, update and delete")
    parser.add_argument("--rounds", type=int, default=3, help="all so many times; the median counts")
    options = parser.parse_args()
    if not os.environ.get(VARIABLE):
        print(f"SQL Server is not measured: {VARIABLE} holds no connection to one")
        return
    server = from_environment("subscriber", {"AIRFLOW_CONN_SUBSCRIBER": os.environ[VARIABLE]})
    _show(measured(server, options.rows, options.rounds), options.rows)


def measured(server: Connection, rows: int, rounds: int) -> Mapping[str, Mapping[str, float]]:
    """Return seconds by way and workload, the median of the rounds. Raises AssertionError where two ways end in
    different rows."""
    name = f"tranrepl_bench_{uuid4().hex[:8]}"
    mssql_execute(server, f"create database {name}")
    try:
        connection = replace(server, database=name)
        site = Site(Kind("mssql", {}, name), connection, lambda *it: mssql_execute(connection, *it), "dbo")
        site.chunk = 10_000
        article = site.article("vendor", _COLUMNS)
        seconds: dict[tuple[str, str], list[float]] = {}
        for turn in range(rounds):
            with step(f"round {turn + 1}"):
                _race(site, article, rows, seconds)
    finally:
        mssql_execute(server, f"drop database {name}")
    return {
        way.name: {work: statistics.median(its) for (of, work), its in seconds.items() if of == way.name}
        for way in _WAYS
    }


def _race(site: Site, article: RegisteredArticle, rows: int, seconds: dict[tuple[str, str], list[float]]) -> None:
    ends: list[Sequence[tuple[object, ...]]] = []
    for way in _WAYS:
        for work, history in _workloads(article, rows).items():
            site.execute(f"update msreplication_subscriptions set transaction_timestamp = 0x{FIRST_XACT_SEQNO.hex()}")
            commands = history.table()
            with way.settings():
                started = time.perf_counter()
                site.deliver(commands, options=ApplierOptions(apply=way.apply)).raise_error()
                seconds.setdefault((way.name, work), []).append(time.perf_counter() - started)
            ends.append(site.rows("vendor"))
    works = len(ends) // len(_WAYS)
    if any(end != ends[at % works] for at, end in enumerate(ends)):
        raise AssertionError("two ways end in different rows")


def _workloads(article: RegisteredArticle, rows: int) -> dict[str, History]:
    made = {"insert": History(), "update": History(), "delete": History()}
    for number in range(rows):
        if number % _TRANSACTION_ROWS == 0:
            for history in made.values():
                history.transaction()
        before, after = _row(number, "1"), _row(number, "2")
        made["insert"].insert(article, before)
        made["update"].update(article, before, after)
        made["delete"].delete(article, after)
    return made


def _row(number: int, rating: str) -> Image:
    url = f"http://example.com/vendor/{number}" if number % 3 == 0 else None
    name = f"Name of vendor {number}"
    return [str(number), f"ACCT{number}", name, rating, "t", "f", url, "2026-01-01 00:00:00"]


def _show(found: Mapping[str, Mapping[str, float]], rows: int) -> None:
    works = list(found[_ALONE.name])
    shown = Table("", *works, title="changes a second, and the ratio to one call a round trip")
    for way, seconds in found.items():
        ratios = (found[_ALONE.name][work] / seconds[work] for work in works)
        shown.add_row(way, *(f"{rows / seconds[work]:,.0f} ({it:.1f})" for work, it in zip(works, ratios, strict=True)))
    Console().print(shown)


if __name__ == "__main__":
    main()
