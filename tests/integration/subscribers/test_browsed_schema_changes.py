"""`tranrepl browse` shows what a schema change will run at a Subscriber, and that is what its delivery then runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.mariadb import MariaDbServer
from support.observed import distribution_rows
from support.site import Site
from support.spark_here import SparkHere
from tranrepl.admin.browse import Selection, browse
from tranrepl.connections import Connection

_SUBSCRIPTIONS = [
    {"name": "reporting", "connection": "subscriber"},
    {"name": "mariadb", "connection": "mariadb"},
    {"name": "sqlite", "connection": "sqlite"},
]
_DDL = (
    "ALTER TABLE vendor RENAME COLUMN name TO title",
    "ALTER TABLE vendor ADD COLUMN total numeric(10,2) DEFAULT 0.50, ADD COLUMN remark text, DROP COLUMN note",
    "ALTER TABLE vendor ALTER COLUMN code TYPE varchar(40)",
    "ALTER TABLE vendor ALTER COLUMN rating DROP NOT NULL",
)
_PLANNED = {
    "reporting": (
        'ALTER TABLE "{0}"."vendor" RENAME COLUMN "name" TO "title"',
        'ALTER TABLE "{0}"."vendor" ADD COLUMN "total" numeric(10,2) DEFAULT \'0.50\'',
        'ALTER TABLE "{0}"."vendor" ALTER COLUMN "code" TYPE character varying(40)',
        'ALTER TABLE "{0}"."vendor" ALTER COLUMN "rating" DROP NOT NULL',
    ),
    "mariadb": (
        "ALTER TABLE `{0}`.`vendor` RENAME COLUMN `name` TO `title`",
        "ADD COLUMN `total` DECIMAL(10, 2) NULL DEFAULT (0.50)",
        "ALTER TABLE `{0}`.`vendor` MODIFY COLUMN `code` VARCHAR(40)",
        "ALTER TABLE `{0}`.`vendor` MODIFY COLUMN `rating` INTEGER NULL",
    ),
    "sqlite": (
        'ALTER TABLE "vendor" RENAME COLUMN "name" TO "title"',
        'ALTER TABLE "vendor" ADD COLUMN "total" TEXT',
        'ALTER TABLE "vendor" DROP COLUMN "note"',
    ),
}


@pytest.fixture
def site(databases: DatabasesFactory, mariadb: MariaDbServer, mariadb_database: str, tmp_path: Path) -> Site:
    commands = dict.fromkeys(["ins_cmd", "upd_cmd", "del_cmd"], "SQL")
    article = {"source": "public.vendor", "destination": f"{mariadb_database}.vendor", **commands}
    site = Site(databases(), tmp_path / "store", [article], SparkHere(), _SUBSCRIPTIONS, replicate_ddl=True)
    site.connections["mariadb"] = mariadb.connection(mariadb_database, "mariadb")
    site.connections["sqlite"] = Connection(
        connection_id="sqlite", kind="sqlite", database=str(tmp_path / "subscriber.db")
    )
    site.at_publisher(
        "CREATE TABLE vendor (id int PRIMARY KEY, name text, code varchar(20), rating int NOT NULL, note text)"
    )
    site.set_up()
    site.at_publisher("INSERT INTO vendor VALUES (1, 'one', 'c', 1, 'note')", *_DDL)
    site.read_log().raise_error()
    return site


def _planned(site: Site, name: str) -> list[str]:
    with site.topology.distributor() as database:
        record = database.publications.get("purchasing")
        batches, articles = database.batches.after(record, b""), database.articles.by_id(record)
        shown = browse(record, batches, articles, Selection(), site.topology.dialect(name))
        return [statement for command in shown for statement in command.statements]


def _beginning(statement: str) -> str:
    """Without values, which stand apart from a statement that takes them, and types, which a server spells its way."""
    return re.split(r" DEFAULT | SET |(?<=MODIFY COLUMN `rating`) ", statement)[0]


@pytest.mark.parametrize("name", list(_PLANNED))
def test_what_browse_shows_of_a_schema_change_is_what_its_delivery_runs(
    site: Site, mariadb_database: str, name: str
) -> None:
    planned = _planned(site, name)
    for wanted in _PLANNED[name]:
        assert any(wanted.format(mariadb_database) in it for it in planned), (wanted, planned)
    result = site.deliver(name)
    result.raise_error()
    ran = [re.sub(r"^Subscriber \w+: (ran )?", "", it) for it in result.applied_schema_changes]
    for it in planned:
        assert _beginning(it) in map(_beginning, ran), (it, ran)
    (history,) = distribution_rows(
        site,
        "SELECT h.comments FROM msdistribution_history h JOIN mssubscriptions s USING (subscription_id) "
        f"WHERE s.subscription = '{name}'",
    )
    for it in ran:
        assert it in history[0], (it, history[0])
