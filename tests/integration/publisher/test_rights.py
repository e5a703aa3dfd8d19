"""The right to read the Publisher's log is tried: an attribute of the role is not what every server judges by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from conftest import DatabasesFactory
from support.databases import Databases
from support.least_rights import with_login
from support.site import Site, execute
from tranrepl.admin.check import check
from tranrepl.connections import Connection
from tranrepl.errors import ConfigurationError, ReplicationError

pytestmark = pytest.mark.new_sessions

_PEEK = "FUNCTION pg_catalog.pg_logical_slot_peek_binary_changes(name, pg_lsn, int, text[])"


@pytest.fixture
def owners(databases: DatabasesFactory) -> Databases:
    return databases()


@pytest.fixture
def login(owners: Databases) -> Iterator[Connection]:
    """Yield the login of an ordinary role that owns the Publisher's table."""
    name, password = f"publisher_{uuid4().hex[:8]}", uuid4().hex
    execute(
        owners.publisher,
        f"CREATE ROLE {name} LOGIN PASSWORD '{password}'",
        f"CREATE ROLE {name}_other REPLICATION ROLE {name}",
        f"GRANT CREATE ON DATABASE {owners.publisher.database} TO {name}",
        "CREATE TABLE t (id int PRIMARY KEY)",
        f"ALTER TABLE t OWNER TO {name}",
    )
    yield with_login(owners.publisher, name, password)
    execute(owners.publisher, f"DROP OWNED BY {name}, {name}_other", f"DROP ROLE {name}, {name}_other")


def _problems(owners: Databases, login: Connection, tmp_path: Path) -> list[ReplicationError]:
    site = Site(replace(owners, publisher=login), tmp_path / "store", ["public.t"])
    return check(site.topology).problems


def test_a_role_without_the_right_is_refused_with_the_ways_to_it(
    owners: Databases, login: Connection, tmp_path: Path
) -> None:
    (problem,) = _problems(owners, login, tmp_path)
    assert isinstance(problem, ConfigurationError)
    assert problem.report.shown_number == "229 (42501)"
    assert f"role {login.login} may not read the log" in problem.message
    assert f'ALTER ROLE "{login.login}" REPLICATION' in (problem.report.remedy or "")
    assert f'GRANT rds_replication TO "{login.login}"' in (problem.report.remedy or "")
    execute(owners.publisher, f"ALTER ROLE {login.login} REPLICATION")
    assert _problems(owners, login, tmp_path) == []
    assert _problems(owners, owners.publisher, tmp_path) == []


def test_the_attribute_alone_is_not_believed(owners: Databases, login: Connection, tmp_path: Path) -> None:
    execute(
        owners.publisher,
        f"ALTER ROLE {login.login} REPLICATION",
        f"REVOKE EXECUTE ON {_PEEK} FROM PUBLIC",
    )
    (problem,) = _problems(owners, login, tmp_path)
    assert (problem.report.shown_number, type(problem)) == ("229 (42501)", ConfigurationError)
    execute(owners.publisher, f"GRANT EXECUTE ON {_PEEK} TO {login.login}")
    assert _problems(owners, login, tmp_path) == []


def test_what_a_session_may_a_replication_connection_may_not(
    owners: Databases, login: Connection, tmp_path: Path
) -> None:
    # The session becomes a role that may; the server judges a replication connection by its login.
    execute(
        owners.publisher,
        f"ALTER ROLE {login.login} SET role = '{login.login}_other'",
        f"GRANT CREATE ON DATABASE {owners.publisher.database} TO {login.login}_other",
        f"ALTER TABLE t OWNER TO {login.login}_other",
    )
    (problem,) = _problems(owners, login, tmp_path)
    assert isinstance(problem, ConfigurationError)
    assert "no replication connection" in problem.message
    assert f'ALTER ROLE "{login.login}" REPLICATION' in (problem.report.remedy or "")
