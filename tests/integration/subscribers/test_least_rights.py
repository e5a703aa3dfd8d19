"""The jobs run with the rights that the docs give them, setup says what more it needs, and no password shows."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus
from uuid import uuid4

import pytest

from conftest import DatabasesFactory
from support.databases import Databases
from support.embedded_postgres import PostgresServer
from support.in_process import deliver_commands, read_commands, replicate, replicate_stored
from support.least_rights import documented_rights, with_login
from support.mariadb import MariaDbServer
from support.site import Site, execute
from support.subscribers import STATEMENTS
from tranrepl.admin.check import check
from tranrepl.connections import Connection
from tranrepl.distribution.opening import open_distribution
from tranrepl.errors import ConfigurationError, DataError
from tranrepl.model.commands import Operation
from tranrepl.publisher.postgres.rights import FOR_OWNER, OR_GRANT
from tranrepl.subscriber.procedure_names import PREFIXES
from tranrepl.subscriber.registry import dialect_of

MARKER = "m@rk/er pass%41+w?rd#&é"
SPELLINGS = {MARKER, quote(MARKER), quote(MARKER, safe=""), quote_plus(MARKER), quote_plus(MARKER, safe="@")}
TABLES = (
    "CREATE TABLE customer (id int PRIMARY KEY, name text)",
    "CREATE TABLE orders (id int PRIMARY KEY, customer int REFERENCES customer, total numeric(9, 2))",
)
ARTICLES = ({"source": "public.customer", "filter": "name <> 'hidden'"}, {"source": "public.orders", **STATEMENTS})
CHANGES = (
    "INSERT INTO customer VALUES (1, 'one'), (2, 'two'), (3, 'hidden')",
    "INSERT INTO orders VALUES (1, 1, 1.5), (2, 2, NULL), (3, 3, 4)",
    "UPDATE customer SET name = 'first' WHERE id = 1; UPDATE orders SET total = 2, id = 20 WHERE id = 2",
    "DELETE FROM orders WHERE id = 3",
)


_ALTERED = (
    "ALTER TABLE customer ADD COLUMN note text DEFAULT 'new'",
    "INSERT INTO customer VALUES (4, 'four', 'own')",
    "ALTER TABLE orders DROP COLUMN customer, ADD COLUMN note text DEFAULT 'new'",
)
_CUSTOMERS = [(1, "first", "later"), (2, "two", "new"), (4, "four", "own")]
_ORDERS = [(1, Decimal("1.50"), "new"), (20, Decimal("2.00"), "new")]


@dataclass(frozen=True, slots=True)
class Roles:
    """One for each end, with `MARKER` as their password."""

    owners: Databases
    names: dict[str, str]

    def grant(self, end: str, part: str) -> None:
        owner: Connection = getattr(self.owners, end)
        names = {**self.names, "DATABASE reporting": f"DATABASE {owner.database}"}
        execute(owner, *documented_rights(part, MARKER, names))

    def limited(self, end: str) -> Connection:
        return with_login(getattr(self.owners, end), self.names[f"repl_{end}"], MARKER)


@pytest.fixture
def roles(databases: DatabasesFactory, postgres: PostgresServer) -> Iterator[Roles]:
    ends = databases()
    suffix = uuid4().hex[:8]
    made = Roles(ends, {f"repl_{end}": f"{end}_{suffix}" for end in ("publisher", "subscriber", "distribution")})
    yield made
    for end in ("publisher", "subscriber", "distribution"):
        owner: Connection = getattr(ends, end)
        execute(owner, f"DROP OWNED BY {made.names[f'repl_{end}']}", f"DROP ROLE {made.names[f'repl_{end}']}")


def _site(ends: Databases, tmp_path: Path, spark: Any = None) -> Site:
    return Site(ends, tmp_path / "store", ARTICLES, spark)


def _set_up(roles: Roles, tmp_path: Path) -> None:
    """Set up by the documented steps: roles at Publisher and Distributor, owners at Subscriber and Publisher."""
    execute(roles.owners.publisher, *TABLES)
    roles.grant("publisher", "Publisher")
    roles.grant("distribution", "Distributor")
    ends = Databases(roles.limited("publisher"), roles.owners.subscriber, roles.limited("distribution"))
    with pytest.raises(ConfigurationError, match=r"does not own public\.customer, public\.orders") as refused:
        _site(ends, tmp_path).set_up()
    assert execute(roles.owners.publisher, "SELECT count(*) FROM pg_publication") == [(0,)]
    introduction, *statements = (refused.value.report.remedy or "").partition(OR_GRANT)[0].splitlines()
    assert introduction == FOR_OWNER
    execute(roles.owners.publisher, *statements)
    done = _site(ends, tmp_path).set_up()
    assert [it.split(" tranrepl_")[0] for it in done if "Publisher" in it] == ["created replication slot"]


@pytest.mark.spark
def test_jobs_run_with_the_least_rights_and_show_no_password(
    roles: Roles, tmp_path: Path, spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    _set_up(roles, tmp_path)
    roles.grant("subscriber", "Subscriber, after setup")
    limited = _site(
        Databases(*(roles.limited(it) for it in ("publisher", "subscriber", "distribution"))), tmp_path, spark
    )
    execute(roles.owners.publisher, *CHANGES)
    limited.run()
    assert execute(roles.owners.subscriber, "SELECT * FROM customer ORDER BY 1") == [(1, "first"), (2, "two")]
    assert _site(roles.owners, tmp_path).differences() == ["public.customer"]
    assert execute(roles.owners.subscriber, "SELECT id FROM orders ORDER BY 1") == [(1,), (20,)]

    # A data error, and a login that is refused.
    execute(roles.owners.subscriber, "DELETE FROM orders")
    execute(roles.owners.publisher, "UPDATE orders SET total = 3 WHERE id = 1")
    texts = [_raised(limited, DataError)]
    wrong = replace(limited.databases.subscriber, login=roles.names["repl_publisher"], password=MARKER + "!")
    limited.connections["subscriber"] = wrong
    texts.append(_raised(limited, ConfigurationError))
    # The refused login has no number of SQL Server's.
    found = execute(roles.limited("distribution"), "SELECT error_code FROM msrepl_errors ORDER BY id")
    assert found == [("20598",), (None,)]

    texts += [_dump(getattr(roles.owners, end)) for end in ("publisher", "subscriber", "distribution")]
    texts += [caplog.text, *(it.read_bytes().decode(errors="replace") for it in tmp_path.rglob("*") if it.is_file())]
    assert "msrepl_errors" in "".join(texts)
    assert [it for it in SPELLINGS if any(it in text for text in texts)] == []


def _raised(site: Site, kind: type[Exception]) -> str:
    """Return what a run raised, with its causes."""
    with pytest.raises(kind) as caught:
        site.run()
    return "".join(traceback.format_exception(caught.value)) + repr(caught.value)


def _dump(connection: Connection) -> str:
    """Return every row of every table that is not the server's own."""
    tables = execute(
        connection,
        "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' AND relnamespace::regnamespace::text "
        "NOT IN ('pg_catalog', 'information_schema')",
    )
    rows = [(name, execute(connection, f"SELECT t::text FROM {name} t")) for (name,) in tables]
    return repr(rows)


def test_a_mariadb_subscriber_needs_no_more_than_documented(
    databases: DatabasesFactory, mariadb: MariaDbServer, mariadb_database: str, tmp_path: Path
) -> None:
    owners = replace(databases(), subscriber=mariadb.connection(mariadb_database))
    login = f"repl_{uuid4().hex[:8]}"
    articles = [{**it, "destination": str(it["source"]).replace("public", mariadb_database)} for it in ARTICLES]
    site = Site(owners, tmp_path / "store", articles)
    site.at_publisher(*TABLES)
    site.set_up()
    names = {"reporting": mariadb_database, "repl_subscriber": login}
    mariadb.execute(*documented_rights("Subscriber, where it is MariaDB, after setup", MARKER, names))
    limited = replace(owners, subscriber=with_login(owners.subscriber, login, MARKER))
    site.at_publisher(*CHANGES)
    replicate(Site(limited, tmp_path / "store", articles))
    assert mariadb.execute("SELECT * FROM customer ORDER BY 1", database=mariadb_database) == [(1, "first"), (2, "two")]
    assert mariadb.execute("SELECT id FROM orders ORDER BY 1", database=mariadb_database) == [(1,), (20,)]

    # Bulk needs a look at triggers, and at the texts of procedures, which are setup's.
    as_limited = Site(limited, tmp_path / "store", articles)
    assert _in_bulk(as_limited) == {}
    mariadb.execute(*documented_rights("Subscriber, where it is MariaDB, to apply in bulk", MARKER, names))
    assert _in_bulk(as_limited) == {"public.orders": set(PREFIXES)}
    assert _in_bulk(site) == {"public.orders": set(PREFIXES), "public.customer": set(PREFIXES)}
    site.at_publisher("UPDATE orders SET total = 7", "DELETE FROM orders WHERE id = 1")
    result = deliver_commands(as_limited, read_commands(as_limited))
    assert (result.error, result.in_bulk, result.fallbacks) == (None, 3, {})
    assert mariadb.execute("SELECT id, total FROM orders", database=mariadb_database) == [(20, 7)]
    mariadb.execute(f"DROP USER '{login}'@'%'")


def test_a_mariadb_login_makes_schema_changes_with_the_documented_rights(
    databases: DatabasesFactory, mariadb: MariaDbServer, mariadb_database: str, tmp_path: Path
) -> None:
    owners = replace(databases(), subscriber=mariadb.connection(mariadb_database))
    login = f"repl_{uuid4().hex[:8]}"
    articles = [{**it, "destination": str(it["source"]).replace("public", mariadb_database)} for it in ARTICLES]
    as_owner = Site(owners, tmp_path / "store", articles, replicate_ddl=True)
    as_owner.at_publisher(*TABLES)
    as_owner.set_up()
    names = {"reporting": mariadb_database, "repl_subscriber": login}
    for part in ("after setup", "to replicate schema changes"):
        mariadb.execute(*documented_rights(f"Subscriber, where it is MariaDB, {part}", MARKER, names))
    limited = replace(owners, subscriber=with_login(owners.subscriber, login, MARKER))
    site = Site(limited, tmp_path / "store", articles, replicate_ddl=True)
    for changes in (CHANGES, _ALTERED, ["UPDATE customer SET note = 'later' WHERE id = 1"]):
        site.at_publisher(*changes)
        replicate_stored(site)
    altered = mariadb.execute("SELECT id, name, note FROM customer ORDER BY id", database=mariadb_database)
    assert altered == _CUSTOMERS
    assert mariadb.execute("SELECT * FROM orders ORDER BY id", database=mariadb_database) == _ORDERS
    mariadb.execute(f"DROP USER '{login}'@'%'")


def test_a_postgres_login_makes_schema_changes_with_the_documented_rights(roles: Roles, tmp_path: Path) -> None:
    _set_up(roles, tmp_path)
    distribution = roles.limited("distribution")
    owners = Databases(roles.owners.publisher, roles.owners.subscriber, distribution)
    Site(owners, tmp_path / "store", ARTICLES, replicate_ddl=True).set_up()
    roles.grant("publisher", "Publisher, where another login ran setup")
    roles.grant("subscriber", "Subscriber, after setup")
    site = Site(
        Databases(roles.limited("publisher"), roles.limited("subscriber"), distribution),
        tmp_path / "store",
        ARTICLES,
        replicate_ddl=True,
    )
    (warned,) = (it for it in check(site.topology).warnings if "may not alter them" in it)
    assert (warned.count("ALTER TABLE"), "customer" in warned, "orders" in warned) == (2, True, True)
    (procedures,) = (it for it in check(site.topology).warnings if "may not replace generated procedures" in it)
    assert procedures.count("ALTER PROCEDURE") == 3
    # The tables are a superuser's, whose role is not for the jobs.
    assert not re.search(r'GRANT "?\w+"? TO', warned)
    roles.grant("subscriber", "Subscriber, to replicate schema changes")
    assert not any("which the Publisher's schema changes need" in it for it in check(site.topology).warnings)
    for changes in (CHANGES, _ALTERED, ["UPDATE customer SET note = 'later' WHERE id = 1"]):
        execute(roles.owners.publisher, *changes)
        replicate_stored(site)
    assert execute(roles.owners.subscriber, "SELECT id, name, note FROM customer ORDER BY id") == _CUSTOMERS
    assert execute(roles.owners.subscriber, "SELECT * FROM orders ORDER BY id") == _ORDERS


def _in_bulk(site: Site) -> dict[str, set[Operation]]:
    """Return the operations of each article that go in bulk with the rights of the site's login."""
    with open_distribution(site.topology, "reporting") as opened:
        articles = opened.database.articles.by_id(opened.record)
        with dialect_of(opened.connection).applier(opened.connection, opened.key, articles) as applier:
            return {str(articles[number].source): set(its) for number, its in applier.bulk_operations.items()}


def test_a_custom_procedure_whose_text_nobody_may_see_is_called_and_said(
    databases: DatabasesFactory, mariadb: MariaDbServer, mariadb_database: str, tmp_path: Path
) -> None:
    login, password = f"newcomer_{uuid4().hex[:8]}", uuid4().hex
    owners = replace(databases(), subscriber=mariadb.connection(mariadb_database))
    mariadb.execute(
        f"CREATE USER '{login}'@'%' IDENTIFIED BY '{password}'",
        "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX, REFERENCES, CREATE ROUTINE, ALTER ROUTINE, "
        f"EXECUTE ON `{mariadb_database}`.* TO '{login}'@'%'",
        "CREATE PROCEDURE add_ticket(n int, t varchar(50)) INSERT INTO ticket VALUES (n, CONCAT('own ', t))",
        database=mariadb_database,
    )
    limited = replace(owners, subscriber=with_login(owners.subscriber, login, password))
    article = {"source": "public.ticket", "destination": f"{mariadb_database}.ticket", "ins_cmd": "CALL add_ticket"}
    site = Site(limited, tmp_path / "store", [article])
    site.at_publisher("CREATE TABLE ticket (id int PRIMARY KEY, name text)")
    site.set_up()
    found = check(site.topology)
    grant = f"GRANT SELECT ON mysql.proc TO '{login}'@'%'"
    unseen = (
        "article public.ticket: Subscriber reporting: our login may not see the text of add_ticket, which is not "
        f"looked through for COMMIT and the like; an administrator lets it: {grant};"
    )
    assert (found.problems, unseen in found.warnings) == ([], True)
    site.at_publisher("INSERT INTO ticket VALUES (1, 'one')")
    replicate(site)
    assert mariadb.execute("SELECT * FROM ticket", database=mariadb_database) == [(1, "own one")]
    mariadb.execute(grant)
    assert unseen not in check(site.topology).warnings
    mariadb.execute(f"DROP USER '{login}'@'%'")


def _revoking(grants: Iterable[str]) -> list[str]:
    return [it.removesuffix(";").replace("GRANT ", "REVOKE ").replace(" TO ", " FROM ") for it in grants]


def test_what_a_mariadb_login_may_not_is_told_with_the_grant(
    databases: DatabasesFactory, mariadb: MariaDbServer, mariadb_database: str, tmp_path: Path
) -> None:
    login, password = f"newcomer_{uuid4().hex[:8]}", uuid4().hex
    owners = replace(databases(), subscriber=mariadb.connection(mariadb_database))
    mariadb.execute(
        f"CREATE USER '{login}'@'%' IDENTIFIED BY '{password}'",
        f"GRANT SHOW VIEW ON `{mariadb_database}`.* TO '{login}'@'%'",
    )
    limited = replace(owners, subscriber=with_login(owners.subscriber, login, password))
    article = {"source": "public.ticket", "destination": f"{mariadb_database}.ticket"}
    site = Site(limited, tmp_path / "store", [article])
    site.at_publisher("CREATE TABLE ticket (id int PRIMARY KEY, name text)")
    (problem,) = check(site.topology).problems
    assert problem.message == f"Subscriber reporting: login {login} may not create what setup creates"
    _, *lines = (problem.report.remedy or "").splitlines()
    mariadb.execute(*(line.removesuffix(";") for line in lines))
    assert check(site.topology).problems == []
    site.set_up()
    site.at_publisher("INSERT INTO ticket VALUES (1, 'one')")
    replicate(site)
    assert mariadb.execute("SELECT * FROM ticket", database=mariadb_database) == [(1, "one")]
    mariadb.execute(*_revoking(lines))
    (problem,) = check(site.topology).problems
    assert problem.message == f"Subscriber reporting: login {login} may not apply commands"
    _, *lines = (problem.report.remedy or "").splitlines()
    assert f"GRANT SELECT, INSERT, UPDATE, DELETE ON `{mariadb_database}`.`ticket` TO '{login}'@'%';" in lines
    mariadb.execute(*(line.removesuffix(";") for line in lines))
    assert check(site.topology).problems == []
    # A table that may not even be looked at is the same mistake.
    mariadb.execute(
        f"REVOKE SHOW VIEW ON `{mariadb_database}`.* FROM '{login}'@'%'",
        *_revoking(it for it in lines if "`ticket`" in it),
    )
    (problem,) = check(site.topology).problems
    assert problem.message == f"Subscriber reporting: login {login} may not create what setup creates"
    mariadb.execute(f"DROP USER '{login}'@'%'")
