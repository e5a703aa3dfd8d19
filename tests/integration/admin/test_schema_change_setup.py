"""Setup creates the event triggers that capture schema changes where its role may, prints what is left to do where
not, and teardown removes them with the last publication.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from textwrap import wrap
from typing import Any
from uuid import uuid4

import pytest

from conftest import DatabasesFactory
from support.databases import Databases
from support.in_process import replicate_stored
from support.least_rights import with_login
from support.shell import publication_file, typed
from support.site import Rows, Site, execute
from tranrepl.admin.check import check
from tranrepl.admin.status import status
from tranrepl.admin.teardown import plan_teardown, tear_down
from tranrepl.errors import ConfigurationError

_TRIGGERS = ["tranrepl_ddl_end", "tranrepl_drop", "tranrepl_rewrite"]
_FOUND = "SELECT evtname::text, evtenabled::text FROM pg_event_trigger ORDER BY 1"
_SCHEMA = "SELECT count(*) FROM pg_namespace WHERE nspname = 'tranrepl'"
_FUNCTIONS = "SELECT proname::text FROM pg_proc WHERE pronamespace = 'tranrepl'::regnamespace ORDER BY 1"


@pytest.fixture
def made(databases: DatabasesFactory) -> Databases:
    made = databases()
    for end in (made.publisher, made.subscriber):
        execute(end, "CREATE TABLE item (id int PRIMARY KEY, note text)")
    return made


_PATH = "SET search_path = pg_catalog, pg_temp"


def _site(databases: Databases, folder: Path, **settings: Any) -> Site:
    # Two publications of it deliver to one table.
    article = {"source": "public.item", "truncate": "ignore"}
    return Site(databases, folder / "store", [article], **{"replicate_ddl": True, **settings})


def _triggers(databases: Databases) -> list[str]:
    return [name for name, _ in execute(databases.publisher, _FOUND)]


@pytest.fixture
def owner(made: Databases) -> Iterator[Databases]:
    """Yield the Publisher by a login that owns the published table, and may create no event trigger."""
    login, password = f"owner_{uuid4().hex[:8]}", uuid4().hex
    execute(
        made.publisher,
        f"CREATE ROLE {login} LOGIN REPLICATION PASSWORD '{password}'",
        f"ALTER TABLE item OWNER TO {login}",
        f'GRANT CREATE ON DATABASE "{made.publisher.database}" TO {login}',
    )
    yield replace(made, publisher=with_login(made.publisher, login, password))
    execute(
        made.publisher, f"REASSIGN OWNED BY {login} TO CURRENT_USER", f"DROP OWNED BY {login}", f"DROP ROLE {login}"
    )


def test_setup_makes_it_once_and_mends_what_is_gone(made: Databases, tmp_path: Path) -> None:
    site, where = _site(made, tmp_path), f"at Publisher {made.publisher.database}"
    triggers = f"created the event triggers that capture schema changes {where}"
    assert [it for it in site.set_up() if "schema" in it] == [
        f"created schema tranrepl {where}",
        f"created the functions that capture schema changes {where}",
        triggers,
    ]
    assert execute(made.publisher, _FOUND) == [(it, "A") for it in _TRIGGERS]
    assert site.set_up() == []
    execute(made.publisher, "ALTER EVENT TRIGGER tranrepl_drop DISABLE", "DROP EVENT TRIGGER tranrepl_rewrite")
    assert status(site.topology).log_reader.schema_changes_stop is not None
    assert site.set_up() == [triggers]
    assert execute(made.publisher, _FOUND) == [(it, "A") for it in _TRIGGERS]
    assert status(site.topology).log_reader.schema_changes_stop is None


def test_setup_replaces_functions_of_an_earlier_version_alone(made: Databases, tmp_path: Path) -> None:
    site = _site(made, tmp_path)
    site.set_up()
    name, source = (
        "tranrepl.announce_schema_change()",
        "SELECT prosrc FROM pg_proc WHERE proname = 'announce_schema_change'",
    )
    current = execute(made.publisher, source)
    other = f"CREATE OR REPLACE FUNCTION {name} RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN NULL; END'"
    comment = "COMMENT ON FUNCTION {} IS 'tranrepl schema changes, version {}'"
    execute(made.publisher, other, comment.format(name, 999))
    assert site.set_up() == []
    execute(made.publisher, comment.format(name, 0))
    assert site.set_up() == [
        f"replaced the functions that capture schema changes at Publisher {made.publisher.database}"
    ]
    assert execute(made.publisher, source) == current


def test_publications_share_it_and_the_last_one_takes_it_along(made: Databases, tmp_path: Path) -> None:
    one, two = _site(made, tmp_path), _site(made, tmp_path / "two", publication="other")
    before: list[Rows] = [execute(made.publisher, it) for it in (_FOUND, _SCHEMA)]
    one.set_up()
    assert not [it for it in two.set_up() if "announce" in it]
    tear_down(plan_teardown(one.topology), lambda _: None)
    assert _triggers(made) == _TRIGGERS
    said: list[str] = []
    tear_down(plan_teardown(two.topology), said.append)
    assert f"schema tranrepl at Publisher {made.publisher.database}" in said
    assert [execute(made.publisher, it) for it in (_FOUND, _SCHEMA)] == before


def test_teardown_leaves_a_schema_of_that_name_which_others_made(made: Databases, tmp_path: Path) -> None:
    site = _site(made, tmp_path)
    execute(made.publisher, "CREATE SCHEMA tranrepl")
    site.set_up()
    tear_down(plan_teardown(site.topology), lambda _: None)
    assert execute(made.publisher, _SCHEMA) == [(1,)]
    assert (_triggers(made), execute(made.publisher, _FUNCTIONS)) == ([], [])


def test_replicate_ddl_false_makes_no_event_trigger_and_removes_what_is_there(made: Databases, tmp_path: Path) -> None:
    on, off = _site(made, tmp_path), _site(made, tmp_path, replicate_ddl=False)
    off.set_up()
    assert (_triggers(made), execute(made.publisher, _FUNCTIONS)) == ([], [])
    assert status(off.topology).log_reader.schema_changes_stop == "replicate_ddl is false"
    on.set_up()
    assert _triggers(made) == _TRIGGERS
    off.set_up()
    assert (_triggers(made), execute(made.publisher, _FUNCTIONS)) == ([], [])


def _printed(databases: Databases, folder: Path) -> str:
    """Return the statements that are left for a superuser."""
    return typed(
        "script",
        publication_file(folder, [{"source": "public.item"}]),
        "--publisher",
        environment=databases.environment,
    ).out


def test_setup_as_an_owner_says_in_short_what_a_superuser_does(
    owner: Databases, made: Databases, tmp_path: Path
) -> None:
    file = publication_file(tmp_path, [{"source": "public.item"}], replicate_ddl=True)
    database, login = made.publisher.database, owner.publisher.login
    warning = (
        f"Publisher {database}: role {login} may not make what captures schema changes, so they stop the publication: "
        f"`tranrepl script {file} --publisher` prints the statements for a superuser, to run after `tranrepl setup "
        f"{file}`; or set replicate_ddl: false"
    )
    done = typed("setup", file, environment=owner.environment)
    assert (done.status, done.err.splitlines()[0]) == (0, f"warning: {warning}")
    assert len(wrap(warning.replace(str(file), "dags/publications/shop.yaml"), 80)) <= 5
    shown = typed("status", file, environment=owner.environment).out
    not_there = "schema changes stop the publication: the event triggers that capture them are missing"
    assert f"{not_there}; `tranrepl script {file} --publisher` prints the statements" in shown
    # The superuser is not to run what the owner has made of a function.
    execute(
        owner.publisher,
        "CREATE OR REPLACE FUNCTION tranrepl.emit(message text) RETURNS void LANGUAGE sql AS $$ SELECT 'hostile' $$",
    )
    statements = _printed(owner, tmp_path)
    assert statements.startswith(f"-- in database {database} of the Publisher, as a superuser\n{_PATH};\nDO $do$")
    execute(made.publisher, statements)
    assert check(_site(owner, tmp_path).topology).warnings == []
    assert _printed(owner, tmp_path) == ""
    shown = typed("status", file, environment=owner.environment).out
    assert "schema changes stop" not in shown
    ((own,),) = execute(
        made.publisher, "SELECT proowner = current_user::regrole FROM pg_proc WHERE proname = 'announce_schema_change'"
    )
    assert own
    assert execute(made.publisher, "SELECT proname FROM pg_proc WHERE prosrc LIKE '%hostile%'") == []


def test_without_event_triggers_an_owner_announces_and_all_else_works(
    owner: Databases, made: Databases, tmp_path: Path
) -> None:
    site = _site(owner, tmp_path)
    execute(made.publisher, f'GRANT CREATE ON SCHEMA public TO "{owner.publisher.login}"')
    site.set_up()
    assert execute(made.publisher, _FUNCTIONS) == [
        *(("announce",), ("announce_schema_change",), ("announce_tables",), ("emit",), ("locked_tables",))
    ]
    replicate_stored(site)
    site.at_publisher("INSERT INTO item VALUES (1, 'one')")
    replicate_stored(site)
    site.at_publisher(
        "BEGIN", "ALTER TABLE item ADD COLUMN a int DEFAULT 5", "SELECT tranrepl.announce('item')", "COMMIT"
    )
    site.at_publisher("INSERT INTO item VALUES (2, 'two', 6)")
    replicate_stored(site)
    assert site.at_subscriber("SELECT * FROM item ORDER BY id") == [(1, "one", 5), (2, "two", 6)]
    site.at_publisher("ALTER TABLE item DROP COLUMN note", "INSERT INTO item VALUES (3, 7)")
    with pytest.raises(ConfigurationError, match=r"public\.item"):
        replicate_stored(site)
    assert site.at_subscriber("SELECT id FROM item ORDER BY id") == [(1,), (2,)]


def test_statements_before_setup_are_all_that_it_takes(owner: Databases, made: Databases, tmp_path: Path) -> None:
    site = _site(owner, tmp_path)
    execute(made.publisher, f'REVOKE CREATE ON DATABASE "{made.publisher.database}" FROM {owner.publisher.login}')
    (warning,) = check(site.topology).warnings
    assert "after `tranrepl setup FILE`" not in warning
    execute(made.publisher, _printed(owner, tmp_path))
    assert check(site.topology).warnings == []
    assert _triggers(made) == _TRIGGERS


def test_who_may_create_no_event_trigger_is_told_who_tears_down(
    owner: Databases, made: Databases, tmp_path: Path
) -> None:
    site = _site(owner, tmp_path)
    _site(made, tmp_path).set_up()
    execute(made.publisher, f"ALTER PUBLICATION {_publication(made)} OWNER TO {owner.publisher.login}")
    with pytest.raises(ConfigurationError, match="may not change: event trigger tranrepl_ddl_end") as caught:
        plan_teardown(site.topology)
    _, *statements = (caught.value.report.remedy or "").splitlines()
    execute(made.publisher, *statements)
    tear_down(plan_teardown(site.topology), lambda _: None)
    assert (_triggers(made), execute(made.publisher, _SCHEMA)) == ([], [(0,)])


def _publication(databases: Databases) -> str:
    ((name,),) = execute(databases.publisher, "SELECT pubname::text FROM pg_publication")
    return str(name)


@pytest.mark.new_sessions
def test_check_warns_where_event_triggers_are_off(made: Databases, tmp_path: Path) -> None:
    site = _site(made, tmp_path)
    site.set_up()
    execute(made.publisher, f'ALTER DATABASE "{made.publisher.database}" SET event_triggers = off')
    assert check(site.topology).warnings == [
        f"Publisher {made.publisher.database}: event_triggers is off, so schema changes stop the publication"
    ]
    assert status(site.topology).log_reader.schema_changes_stop == "event_triggers is off"
