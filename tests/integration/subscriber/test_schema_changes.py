"""Schema changes at a PostgreSQL Subscriber, from stored commands: in the transaction of the rows beside them."""

from __future__ import annotations

import pytest

from conftest import DatabaseFactory
from support.command_history import Column
from support.schema_world import World, added, dropped, renamed, retyped, schema_world
from tranrepl.model.schema_change import LabelAction, LabelChange

ID = Column("id", "integer", key=1)
A = Column("a", "integer")
B = Column("b", "text")


@pytest.fixture
def world(database: DatabaseFactory) -> World:
    return schema_world(database("subscriber"))


def test_rows_before_and_after_each_kind_of_change_arrive(world: World) -> None:
    site, history, moment = world.site, world.history, "2024-02-03 04:05:06.789+00"
    first = site.article("t", [ID, A, B])
    second = site.next_definition(first, [ID, A, B, Column("c", "timestamp with time zone")])
    third = site.next_definition(second, [ID, A, Column("note", "text"), Column("c", "timestamp with time zone")])
    fourth = site.next_definition(third, [ID, Column("note", "text"), Column("c", "text")])
    history.transaction().insert(first, ["1", "1", "x"])
    history.transaction().insert(first, ["2", "2", "y"])
    world.change(first, second, added("c", "timestamp with time zone", existing_value=moment))
    history.insert(second, ["3", "3", "z", None]).update(second, ["1", "1", "x", None], ["1", "10", "x", None])
    history.transaction()
    world.change(second, third, renamed("b", "note"))
    history.update(third, ["2", "2", "y", None], ["2", "2", "Y", None])
    history.transaction()
    world.change(third, fourth, dropped("a"), retyped("c", "text"))
    history.insert(fourth, ["4", None, "text"]).delete(fourth, ["3", "z", None])
    result = world.delivered()
    assert site.execute("SELECT id, note, c FROM t ORDER BY id") == [
        (1, "x", moment),
        (2, "Y", moment),
        (4, None, "text"),
    ]
    assert world.columns() == [
        ("c", "text", "YES", None),
        ("id", "integer", "NO", None),
        ("note", "text", "YES", None),
    ]
    assert [it for it in result.notices if "ALTER" in it] == [
        f'Subscriber reporting: ALTER TABLE "public"."t" ADD COLUMN "c" timestamp with time zone DEFAULT \'{moment}\'',
        'Subscriber reporting: ALTER TABLE "public"."t" ALTER COLUMN "c" DROP DEFAULT',
        'Subscriber reporting: ALTER TABLE "public"."t" RENAME COLUMN "b" TO "note"',
        'Subscriber reporting: ALTER TABLE "public"."t" DROP COLUMN IF EXISTS "a"',
        'Subscriber reporting: ALTER TABLE "public"."t" ALTER COLUMN "c" TYPE text',
    ]
    assert site.definitions() == {"public.t": fourth.article_id}


def test_rows_that_exist_get_the_value_that_the_publisher_gave(world: World) -> None:
    site, history = world.site, world.history
    first = site.article("t", [ID])
    second = site.next_definition(first, [ID, Column("c", "integer[]"), Column("d", "text"), Column("e", "jsonb")])
    history.transaction().insert(first, ["1"])
    history.transaction()
    world.change(
        first,
        second,
        added("c", "integer[]", existing_value="{1,NULL}"),
        added("d", "text", existing_value="it's \\ 50% \n{} new"),
        added("e", "jsonb", default="'{}'::jsonb"),
    )
    history.insert(second, ["2", None, None, None])
    world.delivered()
    assert site.execute("SELECT * FROM t ORDER BY id") == [
        (1, [1, None], "it's \\ 50% \n{} new", None),
        (2, None, None, None),
    ]


def test_a_generated_column_is_made_and_goes_with_its_base(world: World) -> None:
    site, history = world.site, world.history
    first = site.article("t", [ID, A])
    second = site.next_definition(first, [ID, A])
    third = site.next_definition(second, [ID])
    history.transaction().insert(first, ["1", "20"])
    world.change(first, second, added("twice", generation_expression="(a * 2)"))
    world.change(second, second, added("odd", generation_expression="(missing + 1)"))
    result = world.delivered()
    assert site.execute("SELECT * FROM t") == [(1, 20, 40)]
    assert any("generated column odd was left out" in it for it in result.notices)
    history.transaction()
    world.change(second, third, dropped("a"))
    world.delivered()
    assert site.execute("SELECT * FROM t") == [(1,)]


def test_labels_are_usable_in_the_transaction_that_adds_them(world: World) -> None:
    site, history = world.site, world.history
    site.execute("CREATE TYPE mood AS ENUM ('sad', 'glad')")
    first = site.article("t", [ID, Column("m", "public.mood")])
    second = site.next_definition(first, [ID, Column("m", "public.mood")])
    history.transaction().insert(first, ["1", "glad"])
    labels = (
        LabelChange(action=LabelAction.ADD, type_name="public.mood", label="so-so", before="glad"),
        LabelChange(action=LabelAction.ADD, type_name="public.mood", label="happy", before="glad"),
    )
    world.change(first, second, labels=labels)
    history.insert(second, ["2", "so-so"]).insert(second, ["3", "happy"])
    world.delivered()
    assert site.execute("SELECT id, m::text FROM t ORDER BY t.m, id") == [(2, "so-so"), (3, "happy"), (1, "glad")]


def test_a_failure_after_a_change_leaves_everything_as_before(world: World) -> None:
    site, history = world.site, world.history
    first = site.article("t", [ID, A])
    second = site.next_definition(first, [ID, A, B])
    history.transaction().insert(first, ["1", "1"])
    world.delivered()
    before = world.state()
    history.transaction().insert(first, ["2", "2"])
    world.change(first, second, added("b", "text"))
    history.update(second, ["9", "9", None], ["9", "9", "x"])
    result = world.deliver()
    assert result.error is not None
    assert result.error.number == "20598"
    assert (world.state(), site.execute("SELECT * FROM t")) == (before, [(1, 1)])
    site.execute("INSERT INTO t VALUES (9, 9)")
    world.delivered()
    assert site.execute("SELECT * FROM t ORDER BY id") == [(1, 1, None), (2, 2, None), (9, 9, "x")]


def test_an_article_that_ends_leaves_its_table(world: World) -> None:
    site, history = world.site, world.history
    first = site.article("t", [ID])
    history.transaction().insert(first, ["1"])
    world.change(first, None)
    result = world.delivered()
    assert result.notices == (
        "Subscriber reporting: article public.t ended (ALTER TABLE): table public.t stays as it is",
    )
    assert (site.execute("SELECT * FROM t"), site.definitions()) == ([(1,)], {})


def test_a_change_that_the_table_has_had_is_passed_over(world: World) -> None:
    # A snapshot of its article leaves the table so.
    site, history = world.site, world.history
    first = site.article("t", [ID])
    second = site.next_definition(first, [ID, A])
    third = site.next_definition(second, [ID, A, B])
    with world.subscriber() as subscriber:
        subscriber.record_definitions([third])
    history.transaction()
    world.change(first, second, added("a"))
    world.delivered()
    assert [name for name, *_ in world.columns()] == ["id"]


def test_deferred_checks_are_made_before_a_table_is_altered(world: World) -> None:
    site, history = world.site, world.history
    parent, child = site.article("p", [ID]), site.article("t", [ID, A])
    second = site.next_definition(child, [ID, A, B])
    site.execute("ALTER TABLE t ADD FOREIGN KEY (a) REFERENCES p DEFERRABLE INITIALLY DEFERRED")
    history.transaction().insert(child, ["1", "5"]).insert(parent, ["5"])
    world.change(child, second, added("b", "text"))
    history.insert(second, ["2", "6", None]).insert(parent, ["6"])
    world.delivered()
    assert site.execute("SELECT * FROM t ORDER BY id") == [(1, 5, None), (2, 6, None)]
