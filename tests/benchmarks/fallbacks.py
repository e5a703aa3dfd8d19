"""How many commit batches of a mixed load need the retry over a single connection, by stream assignment.

Orders and their lines under a foreign key, customers with a unique mail address that goes from one to another: 60 %
inserts, 30 % updates, 10 % deletes. Streams are threads here: what falls back does not depend on Spark.
"""

from __future__ import annotations

import random
import tempfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table

from support.databases import create_databases
from support.embedded_postgres import PostgresServer, ServerSettings
from support.in_process import ReadCommands, deliver_commands, deliver_commands_in_streams, read_commands
from support.site import Site, execute
from tranrepl.settings.publication import StreamAssignment
from tranrepl.subscriber.batching.commit_batches import CommitLimits

TRANSACTIONS = 20_000
COMMIT_BATCH = 100
STREAMS = 4
_LATE = "DEFERRABLE INITIALLY DEFERRED"
_TABLES = (
    "CREATE TABLE customer (id int PRIMARY KEY, mail text UNIQUE, note text)",
    f"CREATE TABLE orders (id int PRIMARY KEY, customer int NOT NULL REFERENCES customer {_LATE}, note text)",
    f"CREATE TABLE line (id int PRIMARY KEY, orders int NOT NULL REFERENCES orders {_LATE}, amount int)",
)


def main() -> None:
    shown = Table("stream_assignment", "commit batches", "fell back")
    with (
        tempfile.TemporaryDirectory(prefix="tranrepl-fallbacks-") as folder,
        PostgresServer(ServerSettings(Path(folder) / "server")) as server,
    ):
        article = {"upd_cmd": "XCALL", "del_cmd": "XCALL"}
        tables = ("customer", "orders", "line")
        site = Site(
            create_databases(server), Path(folder) / "store", [{"source": f"public.{it}", **article} for it in tables]
        )
        for end in (site.databases.publisher, site.databases.subscriber):
            execute(end, *_TABLES)
        site.set_up()
        site.at_publisher(_load())
        read = read_commands(site)
        for assignment in StreamAssignment:
            site.at_subscriber(
                "TRUNCATE customer, orders, line",
                "UPDATE msreplication_subscriptions SET transaction_timestamp = decode(repeat('00', 8), 'hex')",
            )
            batches, fallbacks = _deliver(site, read, assignment)
            shown.add_row(assignment, f"{batches}", f"{fallbacks}")
            if site.differences():
                raise AssertionError(f"Publisher and Subscriber differ in {', '.join(site.differences())}")
    Console().print(shown)


def _load() -> str:
    chance, statements, number = random.Random(1), [], 0
    for _ in range(TRANSACTIONS):
        drawn = chance.random()
        if drawn < 0.2:
            number += 1
            statements.append(
                f"INSERT INTO customer VALUES ({number}, 'mail {number}'); "
                f"INSERT INTO orders VALUES ({number}, {number}); INSERT INTO line VALUES ({number}, {number}, 1);"
            )
        elif drawn < 0.6:
            number += 1
            statements.append(
                f"INSERT INTO customer VALUES ({number}, 'mail {number}'); "
                f"INSERT INTO orders VALUES ({number}, {number});"
            )
        elif drawn < 0.89:
            row = chance.randrange(1, number + 2)
            statements.append(f"UPDATE orders SET note = coalesce(note, '') || 'x' WHERE id = {row};")
        elif drawn < 0.9:
            row = chance.randrange(1, number + 2)
            statements.append(
                f"UPDATE customer SET mail = NULL WHERE id = {row}; "
                f"UPDATE customer SET mail = 'mail {row}' WHERE id = {row + 1};"
            )
        else:
            row = chance.randrange(1, number + 2)
            statements.append(f"DELETE FROM line WHERE orders = {row}; DELETE FROM orders WHERE id = {row};")
    body = " COMMIT; ".join(statements)
    return f"DO $$ BEGIN {body} COMMIT; END $$"


def _deliver(site: Site, read: ReadCommands, assignment: StreamAssignment) -> tuple[int, int]:
    """Return the number of commit batches, and how many of them went over a single connection."""
    limits, batches, fallbacks, left = CommitLimits(COMMIT_BATCH, 1_000_000), 0, 0, read
    while len(left.commands):
        first, _ = deliver_commands_in_streams(site, left, limits, STREAMS, assignment, retry=False)
        batches += first.batches
        if first.error is None:
            return batches, fallbacks
        watermark = bytes.fromhex(first.last_xact_seqno or "")
        rest = left.commands.filter(pc.greater(left.commands["xact_seqno"], pa.scalar(watermark, pa.binary())))
        ends = rest["xact_seqno"].unique().to_pylist()
        last = ends[min(COMMIT_BATCH, len(ends)) - 1]
        failed = rest.filter(pc.less_equal(rest["xact_seqno"], pa.scalar(last, pa.binary())))
        deliver_commands(site, replace(read, commands=failed), limits).raise_error()
        batches, fallbacks = batches + 1, fallbacks + 1
        left = replace(read, commands=rest.filter(pc.greater(rest["xact_seqno"], pa.scalar(last, pa.binary()))))
    return batches, fallbacks


if __name__ == "__main__":
    main()
