"""`check` names the rights that setup and the jobs will lack; its statements are enough when they are pasted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from conftest import DatabasesFactory
from support.databases import Databases
from support.least_rights import with_login
from support.site import Rows, Site, execute
from tranrepl.admin.check import check
from tranrepl.connections import Connection
from tranrepl.errors import ConfigurationError, JobRightError, ReplicationError
from tranrepl.publisher.postgres.rights import FOR_OWNER, OR_GRANT

_ENDS = ("publisher", "subscriber", "distribution")
_ARTICLES: tuple[Mapping[str, object], ...] = (
    {"source": "public.ticket"},
    {"source": 'Sales."Order Lines"', "ins_cmd": "SQL", "upd_cmd": "SQL", "del_cmd": "SQL"},
)
_TABLES = (
    "CREATE TABLE ticket (id int PRIMARY KEY, name text)",
    'CREATE SCHEMA "Sales"',
    'CREATE TABLE "Sales"."Order Lines" (id int PRIMARY KEY, name text)',
)
_SUBSCRIPTION = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}
_STATE = """
SELECT c.oid::regclass::text, c.relacl::text FROM pg_class c WHERE c.relnamespace::regnamespace::text !~ '^pg_'
UNION ALL SELECT nspname, nspacl::text FROM pg_namespace
UNION ALL SELECT pubname, '' FROM pg_publication
UNION ALL SELECT datname, datacl::text FROM pg_database WHERE datname = current_database()
ORDER BY 1
"""


@dataclass(frozen=True, slots=True)
class World:
    """The three databases, and a login that owns nothing in any of them."""

    owners: Databases
    login: str
    password: str

    @property
    def limited(self) -> Databases:
        return Databases(*(with_login(self.owner(end), self.login, self.password) for end in _ENDS))

    def owner(self, end: str) -> Connection:
        found: Connection = getattr(self.owners, end)
        return found

    def site(self, tmp_path: Path, **settings: Any) -> Site:
        return Site(self.limited, tmp_path / "store", _ARTICLES, subscriptions=[_SUBSCRIPTION], **settings)

    def state(self) -> list[Rows]:
        return [execute(self.owner(end), _STATE) for end in _ENDS]


@pytest.fixture
def world(databases: DatabasesFactory) -> Iterator[World]:
    made = World(databases(), f"newcomer {uuid4().hex[:8]}", uuid4().hex)
    execute(
        made.owners.publisher, f"CREATE ROLE \"{made.login}\" LOGIN REPLICATION PASSWORD '{made.password}'", *_TABLES
    )
    execute(made.owners.subscriber, f'REVOKE TEMPORARY ON DATABASE "{made.owners.subscriber.database}" FROM PUBLIC')
    yield made
    for end in _ENDS:
        execute(made.owner(end), f'REASSIGN OWNED BY "{made.login}" TO CURRENT_USER', f'DROP OWNED BY "{made.login}"')
    execute(made.owners.publisher, f'DROP ROLE "{made.login}"')


def _problems(site: Site) -> list[ReplicationError]:
    return check(site.topology).problems


def _run_remedy(world: World, problem: ReplicationError, *, granting: bool) -> None:
    """Run the remedy's statements as the owner. Where it offers two ways, take the one that grants, or the one that
    does not.
    """
    assert isinstance(problem, ConfigurationError)
    assert problem.report.shown_number == "229 (42501)"
    end = next(it for it in _ENDS if it in problem.message.lower().replace("database", ""))
    introduction, *lines = (problem.report.remedy or "").splitlines()
    if introduction == FOR_OWNER:
        at = lines.index(OR_GRANT)
        lines = lines[at + 1 :] if granting else lines[:at]
    assert lines
    assert all(line.endswith(";") for line in lines), lines
    execute(world.owner(end), *lines)


@pytest.mark.parametrize("granting", [True, False])
def test_the_statements_of_check_are_all_that_setup_needs(world: World, granting: bool, tmp_path: Path) -> None:
    new_schema = ("DROP SCHEMA public CASCADE", "CREATE SCHEMA public", "GRANT USAGE ON SCHEMA public TO PUBLIC")
    execute(world.owners.distribution, *new_schema)
    site, before = world.site(tmp_path), world.state()
    problems = _problems(site)
    assert world.state() == before
    said = [it.message.replace(world.login, "ROLE") for it in problems]
    where = {end: world.owner(end).database for end in _ENDS}
    own = 'does not own Sales."Order Lines", public.ticket, as setup must to publish the tables'
    assert said == [
        f"Publisher {where['publisher']}: role ROLE may not read every published table",
        f"Publisher {where['publisher']}: role ROLE {own}",
        f"distribution database {where['distribution']}: role ROLE may not create its tables",
        "Subscriber reporting: role ROLE may not create what setup creates",
        "Subscriber reporting: role ROLE may not apply commands",
    ]
    blocking = [it for it in problems if not isinstance(it, JobRightError)]
    assert len(blocking) == 3
    for problem in blocking:
        _run_remedy(world, problem, granting=granting)
    assert site.set_up()
    assert {type(it) for it in _problems(site)} == {JobRightError}
    for problem in _problems(site):
        _run_remedy(world, problem, granting=granting)
    assert _problems(site) == []
    assert site.set_up() == []
    assert _problems(site) == []


def test_a_job_that_may_not_use_what_setup_made_is_told_before(world: World, tmp_path: Path) -> None:
    # Another login set up.
    owners = Site(world.owners, tmp_path / "store", _ARTICLES, subscriptions=[_SUBSCRIPTION])
    owners.set_up()
    site = world.site(tmp_path)
    problems = _problems(site)
    assert [it.message.partition(": role")[0].split(" ")[0] for it in problems] == [
        "Publisher",
        "Publisher",
        "distribution",
        "Subscriber",
    ]
    assert "MSreplication_subscriptions".lower() in str(problems[-1])
    for problem in problems:
        _run_remedy(world, problem, granting=True)
    assert _problems(site) == []
