"""A site that an earlier version of tranrepl made, with commands that wait for delivery.

It is kept as an archive, which that version's own code has made:

    git archive ccd6bec | tar -x -C /tmp/earlier
    PYTHONPATH=tests python -m support.earlier_site /tmp/earlier

One PostgreSQL server has the Publisher, the distribution database and a Subscriber; a second Subscriber is SQLite.
The archive holds the server's files, the command stores, the SQLite file and the publications' files.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from support.embedded_postgres import PostgresServer, ServerSettings
from support.site import execute
from tranrepl.connections import variable_name

ARCHIVE = Path(__file__).with_name("earlier_site.tar.xz")
PUBLICATIONS = ("shop", "ledger")
TABLES = ("customer", "orders", "entry")
_OPTIONS = {"max_wal_size": "32MB", "min_wal_size": "32MB"}

_SHOP = {
    "publication": "shop",
    "articles": [
        {"source": "public.customer"},
        {"source": "public.orders", "columns": ["order_id", "customer_id", "total"], "upd_cmd": "MCALL"},
    ],
    "subscriptions": [{"name": "reporting", "connection": "subscriber", "subscription_streams": 2}],
}
_LEDGER = {
    "publication": "ledger",
    "articles": [{"source": "public.entry", "ins_cmd": "SQL", "upd_cmd": "SQL", "del_cmd": "SQL"}],
    "subscriptions": [{"name": "archive", "connection": "archive"}],
}

_TABLES = (
    "CREATE TABLE customer (customer_id int PRIMARY KEY, name text NOT NULL, city text, since timestamptz)",
    "CREATE TABLE orders (order_id bigint PRIMARY KEY, customer_id int, total numeric(9, 2), note text)",
    "CREATE TABLE entry (entry_id int PRIMARY KEY, amount numeric(12, 2), text text)",
    "INSERT INTO customer SELECT n, 'customer ' || n, 'Graz', '2026-01-01' FROM generate_series(1, 40) n",
    "INSERT INTO orders SELECT n, n % 40 + 1, n * 1.25, 'ours only' FROM generate_series(1, 60) n",
    "INSERT INTO entry SELECT n, n / 4.0, 'entry ' || n FROM generate_series(1, 50) n",
)
_DELIVERED = (
    "UPDATE customer SET city = 'Linz' WHERE customer_id <= 10",
    "DELETE FROM orders WHERE order_id <= 5",
    "INSERT INTO entry VALUES (51, 12.5, NULL)",
)
_STORED = (
    "INSERT INTO customer VALUES (41, 'stored', NULL, NULL)",
    "UPDATE orders SET total = total + 1 WHERE order_id % 2 = 0",
    "UPDATE customer SET customer_id = 1040 WHERE customer_id = 40",
    "DELETE FROM entry WHERE entry_id > 45",
)
_IN_THE_LOG = (
    "UPDATE customer SET name = 'not read yet' WHERE customer_id = 41",
    "INSERT INTO orders VALUES (61, 1, 9.99, NULL)",
    "UPDATE entry SET text = 'not read yet' WHERE entry_id <= 3",
)


class EarlierSite:
    """The unpacked archive in a folder; its server is started on demand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = PostgresServer(ServerSettings(folder / "server", options=_OPTIONS))

    def file(self, publication: str) -> Path:
        """Return the path of a publication."""
        return self.folder / f"{publication}.yaml"

    @property
    def sqlite_file(self) -> Path:
        return self.folder / "archive.sqlite"

    @property
    def environment(self) -> dict[str, str]:
        """`AIRFLOW_CONN_<ID>` of all four."""
        connections: dict[str, dict[str, object]] = {
            it: {
                "conn_type": "postgres",
                "host": "127.0.0.1",
                "port": self.server.port,
                "login": self.server.connection(it).login,
                "password": self.server.connection(it).password,
                "schema": it,
            }
            for it in ("publisher", "subscriber", "distribution")
        }
        connections["archive"] = {"conn_type": "sqlite", "host": str(self.sqlite_file)}
        return {variable_name(it): json.dumps(fields) for it, fields in connections.items()}

    def write_files(self) -> None:
        """Write the publications' files, for this folder."""
        for settings in (_SHOP, _LEDGER):
            name = str(settings["publication"])
            ends = {
                "publisher": {"connection": "publisher"},
                "distributor": {"connection": "distribution", "store": str(self.folder / "store" / name)},
            }
            self.file(name).write_text(yaml.safe_dump({**settings, **ends}), encoding="utf-8")

    def move_here(self, earlier_port: int) -> None:
        """Change the places that the site has recorded to this folder and this server's port, as whoever moves one
        does.
        """
        distribution = self.server.connection("distribution")
        execute(
            distribution,
            f"UPDATE mspublications SET store = '{self.folder / 'store'}/' || publication",
        )
        there, here = f"127.0.0.1:{earlier_port}", f"127.0.0.1:{self.server.port}"
        for table in ("msreplication_subscriptions", "msreplication_objects", "msreplication_snapshots"):
            move = f"UPDATE {table} SET publisher = '{here}' WHERE publisher = '{there}'"
            execute(self.server.connection("subscriber"), move)
            _at_sqlite(self.sqlite_file, move)


def _at_sqlite(file: Path, statement: str) -> None:
    with closing(sqlite3.connect(file)) as session, session:
        session.execute(statement)


def unpacked(folder: Path) -> EarlierSite:
    """Return the site of the archive in a folder, with its server running; the caller stops it."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    site = EarlierSite(folder)
    earlier_port = json.loads(site.server.settings.access.read_text(encoding="utf-8"))["port"]
    _give_to_server(site.server.settings.data)
    site.server.start()
    site.write_files()
    site.move_here(earlier_port)
    return site


def _give_to_server(data: Path) -> None:
    """Make the files private, and the server's own, as PostgreSQL wants: as root, we start it as nobody."""
    if os.geteuid() == 0:
        subprocess.run(["/bin/chown", "-R", "65534:65534", str(data)], check=True)
    subprocess.run(["/bin/chmod", "-R", "go-rwx", str(data)], check=True)


def make_archive(checkout: Path) -> None:
    """Run an earlier checkout's code to set up both publications, deliver, and store what is no longer delivered."""
    with TemporaryDirectory(prefix="tranrepl-earlier-", ignore_cleanup_errors=True) as name:
        site = EarlierSite(Path(name))
        with site.server as server:
            for database in ("publisher", "subscriber", "distribution"):
                server.create_database(database)
            site.write_files()
            execute(server.connection("publisher"), *_TABLES)
            _type(checkout, site, "setup")
            _type(checkout, site, "run")
            execute(server.connection("publisher"), *_DELIVERED)
            _type(checkout, site, "run")
            execute(server.connection("publisher"), *_STORED)
            _type(checkout, site, "log-reader")
            execute(server.connection("publisher"), *_IN_THE_LOG, "CHECKPOINT")
        with tarfile.open(ARCHIVE, "w:xz", preset=9) as archive:
            for path in ("server/data", "server/access.json", "store", "archive.sqlite"):
                archive.add(site.folder / path, path, filter=_without_command_line)


def _without_command_line(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out the file that says how the server was started: it names folders of the machine."""
    return None if member.name.endswith("/postmaster.opts") else member


def _type(checkout: Path, site: EarlierSite, verb: str) -> None:
    """Type a verb of the earlier version for both publications."""
    environment: Mapping[str, str] = {
        **os.environ,
        **site.environment,
        "PYTHONPATH": str(checkout / "spark_jobs"),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "AIRFLOW_HOME": "/nowhere/airflow",
    }
    for publication in PUBLICATIONS:
        command = [sys.executable, "-c", "from tranrepl.cli import main; main()", verb, str(site.file(publication))]
        subprocess.run([*command, *(() if verb == "setup" else ("--master", "local[2]"))], env=environment, check=True)


if __name__ == "__main__":
    make_archive(Path(sys.argv[1]))
