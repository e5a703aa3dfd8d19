"""What the event triggers cost a user's DDL: CPU time of the session's own process, with them and without in turn.

Wall time says little on a machine that does other work. Each kind of command is measured as a session's first DDL, and
as one of those that follow.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
from rich.console import Console
from rich.table import Table

from benchmarks.bounds import end_in_order
from support.announced import PUBLICATION, Announcing
from support.embedded_postgres import PostgresServer, ServerSettings

PARTITIONS = 120
_KINDS = (
    "unpublished table",
    "table of 20 columns",
    "table with an enumerated type",
    "new partition",
    "partition dropped",
    "partition renamed",
    "root",
    "column added to root",
)
_COLUMNS = ", ".join(f"c{n} text DEFAULT 'x'" for n in range(20))


def _partitioned(name: str) -> list[str]:
    """Return the statements that make a table of partitions."""
    return [
        f"CREATE TABLE {name} (id int PRIMARY KEY, v text, w text, x numeric) PARTITION BY RANGE (id)",
        *(f"CREATE TABLE {name}_{n} PARTITION OF {name} FOR VALUES FROM ({n}) TO ({n + 1})" for n in range(PARTITIONS)),
    ]


_TABLES = (
    f"CREATE TABLE wide (id int PRIMARY KEY, {_COLUMNS})",
    "CREATE TABLE unpublished (id int PRIMARY KEY, v text)",
    "CREATE TYPE mood AS ENUM ('sad', 'ok')",
    "CREATE TABLE labelled (id int PRIMARY KEY, how mood, v text)",
    *_partitioned("root"),
    *(f"CREATE TABLE other_{n} (id int PRIMARY KEY, v text)" for n in range(200)),
)
_PUBLISHED = ", ".join(["wide", "labelled", "root", *(f"other_{n}" for n in range(200))])
_TRIGGERS = ("tranrepl_ddl_end", "tranrepl_drop", "tranrepl_rewrite")
_CATALOGUES = ("attrdef", "attribute", "class", "constraint", "depend", "index", "inherits", "type")
_FOLLOWING = 3
_Costs = dict[str, list[float]]
"""Milliseconds, by what was measured."""


def main() -> None:
    end_in_order()
    parser = argparse.ArgumentParser(prog="benchmarks.ddl_cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="the median counts; default 9")
    parser.add_argument("--bindir", type=Path, help="of another PostgreSQL than the embedded one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tranrepl-ddl-cost-") as folder:
        home = Path(folder) / "server"
        settings = ServerSettings(home, bindir=options.bindir) if options.bindir else ServerSettings(home)
        with PostgresServer(settings) as server:
            server.create_database("publisher")
            site = Announcing(server.connection("publisher")).create(_TABLES, _PUBLISHED)
            site.set_up()
            # A slot that nobody reads keeps every row of the catalogues: each command would cost more than the last.
            site.drop_log()
            without, with_triggers = _measured(site, options.rounds)
    _show(without, with_triggers)


def _measured(site: Announcing, rounds: int) -> tuple[_Costs, _Costs]:
    """Return the costs without the event triggers, and with them."""
    costs: tuple[_Costs, _Costs] = (defaultdict(list), defaultdict(list))
    numbers = count(PARTITIONS)
    for turn in range(rounds):
        for on in (False, True) if turn % 2 == 0 else (True, False):
            site.execute(*(f"ALTER EVENT TRIGGER {it} {'ENABLE ALWAYS' if on else 'DISABLE'}" for it in _TRIGGERS))
            for kind in _KINDS:
                if kind == "column added to root":
                    # Columns that are dropped leave traces.
                    site.execute("DROP TABLE IF EXISTS grown", *_partitioned("grown"))
                    site.execute(f"ALTER PUBLICATION {PUBLICATION} ADD TABLE grown")
                site.execute(*(f"VACUUM pg_{it}" for it in _CATALOGUES))
                _run(site, kind, numbers, costs[on])
    return costs


def _run(site: Announcing, kind: str, numbers: Iterator[int], costs: _Costs) -> None:
    with site.user() as session:
        for place in range(1 + _FOLLOWING):
            number = next(numbers)
            if kind == "partition dropped":
                site.execute(_new_partition(number))
            costs[f"{kind}, {'following' if place else 'first'}"].append(_cost(session, _command(kind, number)))
            if kind == "new partition":
                site.execute(f"DROP TABLE root_{number}")


def _command(kind: str, number: int) -> str:
    match kind:
        case "unpublished table":
            return f"ALTER TABLE unpublished ALTER v SET DEFAULT '{number}'"
        case "table of 20 columns":
            return f"ALTER TABLE wide ALTER c1 SET DEFAULT '{number}'"
        case "table with an enumerated type":
            return f"ALTER TABLE labelled ALTER v SET DEFAULT '{number}'"
        case "partition renamed":
            old, new = ("", "_renamed") if number % 2 == 0 else ("_renamed", "")
            return f"ALTER TABLE root_0{old} RENAME TO root_0{new}"
        case "column added to root":
            return f"ALTER TABLE grown ADD COLUMN added_{number} int DEFAULT 7"
        case "new partition":
            return _new_partition(number)
        case "partition dropped":
            return f"DROP TABLE root_{number}"
        case _:
            return f"ALTER TABLE root ALTER v SET DEFAULT '{number}'"


def _new_partition(number: int) -> str:
    return f"CREATE TABLE root_{number} PARTITION OF root FOR VALUES FROM ({number}) TO ({number + 1})"


def _cost(session: psycopg.Connection[Any], command: str) -> float:
    before = _cpu_ms(session)
    session.execute(command.encode())
    return _cpu_ms(session) - before


def _cpu_ms(session: psycopg.Connection[Any]) -> float:
    return int(Path(f"/proc/{session.info.backend_pid}/schedstat").read_text().split()[0]) / 1e6


def _show(without: _Costs, with_triggers: _Costs) -> None:
    shown = Table("CPU ms, median", "without", "with", "difference")
    for what, costs in with_triggers.items():
        before, after = statistics.median(without[what]), statistics.median(costs)
        shown.add_row(what, f"{before:.1f}", f"{after:.1f}", f"{after - before:.1f}")
    Console(width=100).print(shown)


if __name__ == "__main__":
    main()
