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
from dataclasses import dataclass, replace
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
    "CREATE DOMAIN amount AS numeric CHECK (VALUE >= 0)",
    "CREATE TABLE priced (id int PRIMARY KEY, price amount, v text)",
    "CREATE TYPE pair AS (a int, b text)",
    "CREATE TABLE paired (id int PRIMARY KEY, both_ends pair, v text)",
    "CREATE TABLE indexed (id int PRIMARY KEY, v text)",
    *_partitioned("root"),
    *(f"CREATE TABLE other_{n} (id int PRIMARY KEY, v text)" for n in range(200)),
)
_PUBLISHED = ", ".join(["wide", "labelled", "priced", "paired", "indexed", "root", *(f"other_{n}" for n in range(200))])
_TRIGGERS = ("tranrepl_ddl_end", "tranrepl_drop", "tranrepl_rewrite")
_CATALOGUES = ("attrdef", "attribute", "class", "constraint", "depend", "index", "inherits", "type")
_FOLLOWING = 3
_Costs = dict[str, list[float]]
"""Milliseconds, by what was measured."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of command; `{n}` in it is another number each time, and `{m}` the one after it."""

    command: str
    before: tuple[str, ...] = ()
    """What another session does before each command."""
    after: tuple[str, ...] = ()
    at_first: tuple[str, ...] = ()
    """What another session does before the first command of a round."""


def _published(table: str) -> str:
    return f"ALTER PUBLICATION {PUBLICATION} ADD TABLE {table}"


_NEW_PARTITION = "CREATE TABLE root_{n} PARTITION OF root FOR VALUES FROM ({n}) TO ({m})"
# Columns that were added and dropped leave traces, so such tables are made anew.
_KINDS = {
    "unpublished table": _Kind("ALTER TABLE unpublished ALTER v SET DEFAULT '{n}'"),
    "table of 20 columns": _Kind("ALTER TABLE wide ALTER c1 SET DEFAULT '{n}'"),
    "table with an enumerated type": _Kind("ALTER TABLE labelled ALTER v SET DEFAULT '{n}'"),
    "table with a domain": _Kind("ALTER TABLE priced ALTER v SET DEFAULT '{n}'"),
    "table with a composite type": _Kind("ALTER TABLE paired ALTER v SET DEFAULT '{n}'"),
    "at REPEATABLE READ": _Kind(
        "BEGIN ISOLATION LEVEL REPEATABLE READ; ALTER TABLE wide ALTER c1 SET DEFAULT '{n}'; COMMIT"
    ),
    "type altered": _Kind(
        "ALTER TYPE mood RENAME VALUE 'ok' TO 'fine'", after=("ALTER TYPE mood RENAME VALUE 'fine' TO 'ok'",)
    ),
    "column dropped": _Kind(
        "ALTER TABLE shrunk DROP COLUMN w",
        before=(
            "DROP TABLE IF EXISTS shrunk",
            "CREATE TABLE shrunk (id int PRIMARY KEY, v text, w text)",
            _published("shrunk"),
        ),
    ),
    "index created": _Kind("CREATE INDEX indexed_{n} ON indexed (v)", after=("DROP INDEX indexed_{n}",)),
    "index dropped": _Kind("DROP INDEX indexed_{n}", before=("CREATE INDEX indexed_{n} ON indexed (v)",)),
    "new partition": _Kind(_NEW_PARTITION, after=("DROP TABLE root_{n}",)),
    "partition dropped": _Kind("DROP TABLE root_{n}", before=(_NEW_PARTITION,)),
    "partition renamed": _Kind(
        "ALTER TABLE root_0 RENAME TO root_renamed", after=("ALTER TABLE root_renamed RENAME TO root_0",)
    ),
    "root": _Kind("ALTER TABLE root ALTER v SET DEFAULT '{n}'"),
    "column added to root": _Kind(
        "ALTER TABLE grown ADD COLUMN added_{n} int DEFAULT 7",
        at_first=("DROP TABLE IF EXISTS grown", *_partitioned("grown"), _published("grown")),
    ),
}


def main() -> None:
    end_in_order()
    parser = argparse.ArgumentParser(prog="benchmarks.ddl_cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="the median counts; default 9")
    parser.add_argument("--bindir", type=Path, help="of another PostgreSQL than the embedded one")
    parser.add_argument("--preload", action="store_true", help="the server loads PL/pgSQL as it starts")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tranrepl-ddl-cost-") as folder:
        home = Path(folder) / "server"
        settings = ServerSettings(home, options={"shared_preload_libraries": "plpgsql"} if options.preload else {})
        if options.bindir:
            settings = replace(settings, bindir=options.bindir)
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
            for name, kind in _KINDS.items():
                site.execute(*kind.at_first, *(f"VACUUM pg_{it}" for it in _CATALOGUES))
                _run(site, name, numbers, costs[on])
    return costs


def _run(site: Announcing, name: str, numbers: Iterator[int], costs: _Costs) -> None:
    kind = _KINDS[name]
    with site.user() as session:
        for place in range(1 + _FOLLOWING):
            number = next(numbers)

            def numbered(command: str, n: int = number) -> str:
                return command.format(n=n, m=n + 1)

            site.execute(*map(numbered, kind.before))
            costs[f"{name}, {'following' if place else 'first'}"].append(_cost(session, numbered(kind.command)))
            site.execute(*map(numbered, kind.after))


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
