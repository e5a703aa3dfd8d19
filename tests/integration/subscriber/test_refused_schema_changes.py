"""Schema changes that a PostgreSQL Subscriber cannot take: nothing is changed, and the remedy lets it go on."""

from __future__ import annotations

import threading
from dataclasses import replace

import psycopg
import pytest

from conftest import DatabaseFactory
from support.command_history import Column
from support.schema_world import World, added, dropped, renamed, retyped, schema_world
from tranrepl.errors import ErrorKind, ErrorReport
from tranrepl.model.schema_change import ColumnChange
from tranrepl.subscriber.postgres import schema_changes

ID = Column("id", "integer", key=1)
A = Column("a", "integer")
B = Column("b", "integer")


@pytest.fixture
def world(database: DatabaseFactory) -> World:
    return schema_world(database("subscriber"))


def _refused(world: World) -> ErrorReport:
    """Deliver, and return why nothing was done."""
    before, rows = world.state(), world.site.execute("SELECT * FROM t ORDER BY id")
    error = world.deliver().error
    assert error is not None
    assert (world.state(), world.site.execute("SELECT * FROM t ORDER BY id")) == (before, rows)
    return error


def test_a_view_that_refuses_a_change_is_named(world: World) -> None:
    site, history = world.site, world.history
    first = site.article("t", [ID, A, B])
    second = site.next_definition(first, [ID, B])
    third = site.next_definition(second, [ID, Column("b", "text")])
    site.execute("CREATE VIEW shown AS SELECT id, a, b FROM t")
    history.transaction()
    world.change(first, second, dropped("a"))
    error = _refused(world)
    assert (error.kind, "view public.shown depends on column a of table public.t" in error.message) == (
        ErrorKind.CONFIGURATION,
        True,
    )
    site.execute("DROP VIEW shown", "CREATE VIEW shown AS SELECT id, b FROM t")
    world.delivered()
    history.transaction()
    world.change(second, third, retyped("b", "text"))
    error = _refused(world)
    assert (error.kind, "view public.shown" in error.message) == (ErrorKind.CONFIGURATION, True)
    site.execute("DROP VIEW shown")
    world.delivered()


def test_who_does_not_own_the_table_is_told_what_lets_it(world: World) -> None:
    site, history = world.site, world.history
    first = site.article("t", [ID])
    second = site.next_definition(first, [ID, A])
    owner, role = site.connection, f"weak_{site.connection.database}"
    site.execute(
        f"CREATE ROLE {role} LOGIN PASSWORD 'weak'",
        f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}",
        f"GRANT CREATE ON SCHEMA public TO {role}",
    )
    try:
        site.connection = replace(owner, login=role, password="weak")  # noqa: S106 — of nobody
        history.transaction()
        world.change(first, second, added("a"))
        error = _refused(world)
        assert error.kind is ErrorKind.CONFIGURATION
        assert error.message.startswith("Subscriber reporting: table public.t belongs to role ")
        remedy = (error.remedy or "").removeprefix("let the owner, or a superuser, run: ")
        site.execute(*(remedy.partition("; or")[:1]))
        error = _refused(world)
        assert "must be owner of procedure" in error.message
        site.execute(*(error.remedy or "").removeprefix("let the owner, or a superuser, run: ").split("; "))
        world.delivered()
    finally:
        site.connection = owner
        site.execute(f"REASSIGN OWNED BY {role} TO CURRENT_USER", f"DROP OWNED BY {role}", f"DROP ROLE {role}")
    world.delivered()


def test_a_table_in_use_is_waited_for_and_never_for_long(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_changes, "_LOCK_SECONDS", 0.1)
    monkeypatch.setattr(schema_changes, "_BETWEEN_ATTEMPTS", 0.1)
    site, history = world.site, world.history
    first = site.article("t", [ID])
    second = site.next_definition(first, [ID, A])
    history.transaction()
    world.change(first, second, added("a"))
    with psycopg.connect(**site.connection.libpq_parameters("reader")) as reader:  # type: ignore[arg-type]
        reader.execute("SELECT FROM t")
        error = world.deliver().error
        assert error is not None
        assert (error.kind, "table public.t is in use" in error.message) == (ErrorKind.TRANSIENT, True)
        reader.rollback()
        reader.execute("SELECT FROM t")
        released = threading.Timer(0.3, reader.rollback)
        released.start()
        world.delivered()
        released.join()
    assert [name for name, *_ in world.columns()] == ["a", "id"]


@pytest.mark.parametrize(
    ("by_hand", "change", "problem"),
    [
        ("ADD COLUMN c integer", added("c"), None),
        ("ADD COLUMN c text", added("c"), "and there is a column c of type text"),
        ("DROP COLUMN a", dropped("a"), None),
        ("RENAME COLUMN a TO c", renamed("a", "c"), None),
        ("ADD COLUMN c integer", renamed("a", "c"), "a is to be renamed to c, and there is a column c"),
        ("DROP COLUMN a", renamed("a", "c"), "has no column a, which is to be changed"),
        ("ALTER COLUMN a TYPE bigint", retyped("a", "bigint"), None),
        ("DROP COLUMN a", retyped("a", "bigint"), "has no column a, which is to be changed"),
    ],
)
def test_what_was_done_by_hand_is_passed_over_or_refused(
    by_hand: str, change: ColumnChange, problem: str | None, world: World
) -> None:
    site, history = world.site, world.history
    first = site.article("t", [ID, A])
    second = site.next_definition(first, [ID])
    site.execute(f"ALTER TABLE t {by_hand}")
    history.transaction()
    world.change(first, second, change)
    if problem is None:
        shape = world.columns()
        world.delivered()
        assert world.columns() == shape
    else:
        assert problem in _refused(world).message
