"""The commands and statements of how-to/move-to-the-subscriber.md, pasted between two versions of PostgreSQL."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import psycopg
import pytest

from support.checkout import CHECKOUT
from support.databases import Databases
from support.equality import differing_rows
from support.shell import Outcome, publication_file, run_submitted_jobs_here, typed
from support.site import Site, execute
from support.spark_here import SparkHere

pytestmark = pytest.mark.new_sessions

_PAGE = CHECKOUT / "docs" / "how-to" / "move-to-the-subscriber.md"
_BLOCK = re.compile(r"^ *```(sh|sql)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
_ARTICLES = [{"source": f"public.{it}"} for it in ("customer", "orders")]
_SUBSCRIPTIONS = [{"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}]
_TABLES = (
    "CREATE TABLE customer (customer_id serial PRIMARY KEY, name text)",
    "CREATE TABLE orders (order_id bigint GENERATED ALWAYS AS IDENTITY (INCREMENT BY 10) PRIMARY KEY, total int)",
    "INSERT INTO customer (name) VALUES ('Ada'), ('Grace')",
    "INSERT INTO orders (total) SELECT n FROM generate_series(1, 50) n",
)
_LAST_CHANGES = (
    "INSERT INTO customer (name) VALUES ('Edgar')",
    "INSERT INTO orders (total) SELECT n FROM generate_series(1, 30) n",
    "BEGIN; INSERT INTO orders (total) VALUES (0), (0); ROLLBACK",
    "DELETE FROM orders WHERE order_id > 700",
)


@pytest.mark.parametrize("ends", ["from_15_to_18", pytest.param("from_18_to_15", marks=pytest.mark.slow)])
def test_the_subscriber_takes_over_without_giving_an_id_twice(
    ends: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: Databases = request.getfixturevalue(ends)
    site = Site(found, tmp_path / "store", _ARTICLES, SparkHere(), _SUBSCRIPTIONS)
    file = publication_file(tmp_path, _ARTICLES, subscriptions=_SUBSCRIPTIONS)
    run_submitted_jobs_here(site.spark, monkeypatch)
    site.at_publisher(*_TABLES)
    # A table of the user's, without numbers of its own.
    site.at_subscriber("CREATE TABLE customer (customer_id int PRIMARY KEY, name text)")
    site.set_up()
    assert _typed("tranrepl run dags/publications/shop.yaml", file, found).status == 0
    asked, mended, stopped, delivered, numbered, validated, removed = _BLOCK.findall(_PAGE.read_text(encoding="utf-8"))
    assert _typed(asked[1], file, found).status == 1
    _execute(mended, found)
    assert _typed(asked[1], file, found).status == 0
    site.at_publisher(*_LAST_CHANGES)
    _execute(stopped, found)
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        site.at_publisher("INSERT INTO customer (name) VALUES ('forgotten')")
    for _, command in (delivered, numbered, validated):
        outcome = _typed(command, file, found)
        assert outcome.status == 0, (command, outcome)
    assert differing_rows(site) == {}
    before = site.at_subscriber("SELECT * FROM customer ORDER BY 1"), site.at_subscriber("SELECT * FROM orders")
    assert site.at_subscriber("INSERT INTO customer (name) VALUES ('new') RETURNING customer_id") == [(4,)]
    assert site.at_subscriber("INSERT INTO orders (total) VALUES (1), (2) RETURNING order_id") == [(821,), (831,)]
    assert _typed(removed[1], file, found).status == 0
    assert site.at_subscriber("SELECT * FROM customer WHERE name <> 'new' ORDER BY 1") == before[0]
    assert sorted(site.at_subscriber("SELECT * FROM orders WHERE order_id < 821")) == sorted(before[1])


def _typed(command: str, file: Path, databases: Databases) -> Outcome:
    name, *arguments = shlex.split(command)
    assert name == "tranrepl"
    places = {"dags/publications/shop.yaml": str(file)}
    return typed(*(places.get(it, it) for it in arguments), environment=databases.environment)


def _execute(block: tuple[str, str], databases: Databases) -> None:
    """Run the statements of a block where its first line says; the page's database has another name here."""
    language, text = block
    where, _, statements = text.strip().partition("\n")
    connection = {"-- at the Publisher": databases.publisher, "-- at the Subscriber": databases.subscriber}[where]
    assert language == "sql"
    here = statements.replace("DATABASE shop", f"DATABASE {connection.database}")
    execute(connection, *(it for it in here.split(";") if it.strip()))
