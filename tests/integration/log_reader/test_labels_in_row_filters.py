"""Row filters that read columns of enumerated types whose labels are renamed before the log is read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.site import Site
from support.spark_here import SparkHere
from support.whole_run import good_run
from tranrepl.settings.following import edits

_TYPES = (
    "CREATE TYPE mood AS ENUM ('sad', 'glad', 'so so')",
    "CREATE DOMAIN lasting AS mood",
    "CREATE TYPE pair AS (mood mood, note text)",
)
_COLUMNS = "id int PRIMARY KEY, feeling mood, always lasting, many mood[], two pair, note text"
_FILTERS = (
    ("feeling = 'sad'", "feeling = 'blue'"),
    ("feeling IN ('sad', 'so so') AND note = 'sad'", "feeling IN ('blue', 'so so') AND note = 'sad'"),
    ("always::public.mood <> 'glad'::public.mood", "always::public.mood <> 'merry'::public.mood"),
    ("many && '{sad,\"so so\"}' AND note IS NOT NULL", "many && '{blue,\"so so\"}' AND note IS NOT NULL"),
    ("feeling < 'glad'", "feeling < 'merry'"),
)
_SAD = "'sad', 'sad', '{glad,sad}', NULL, 'sad'"
_GLAD = "'glad', 'glad', '{glad}', NULL, 'sad'"


def _site(databases: DatabasesFactory, tmp_path: Path, filters: Sequence[str], *, announced: bool = True) -> Site:
    names = [f"item_{at}" for at in range(len(filters))]
    site = Site(
        databases(),
        tmp_path / "store",
        [{"source": f"public.{name}", "filter": it} for name, it in zip(names, filters, strict=True)],
        SparkHere(),
        [{"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}],
        replicate_ddl=announced,
    )
    site.at_publisher(*_TYPES, *(f"CREATE TABLE {name} ({_COLUMNS})" for name in names))
    site.at_subscriber(*_TYPES)
    site.set_up()
    site.take_snapshot().raise_error()
    return site


def _rename(before: str, now: str) -> str:
    return f"ALTER TYPE mood RENAME VALUE '{before}' TO '{now}'"


def _insert(table: int, *rows: str) -> str:
    return f"INSERT INTO item_{table} VALUES {', '.join(f'({it})' for it in rows)}"


def _ids(site: Site, table: int) -> list[int]:
    return [it for (it,) in site.at_subscriber(f"SELECT id FROM item_{table} ORDER BY id")]


@pytest.mark.parametrize("filters", [_FILTERS[1:2], pytest.param(_FILTERS, marks=pytest.mark.slow)])
def test_filters_go_on_with_the_names_that_labels_have_now(
    databases: DatabasesFactory, tmp_path: Path, filters: Sequence[tuple[str, str]]
) -> None:
    site = _site(databases, tmp_path, [it for it, _ in filters])
    tables = range(len(filters))
    for it in tables:
        site.at_publisher(
            _insert(it, f"1, {_SAD}", f"2, {_GLAD}", f"3, {_SAD}", f"4, {_GLAD}"),
            f"UPDATE item_{it} SET feeling = 'glad', always = 'glad', many = '{{glad}}' WHERE id = 3",
            f"UPDATE item_{it} SET feeling = 'sad', always = 'sad', many = '{{sad}}' WHERE id = 4",
        )
    # Another label gets the old name.
    site.at_publisher(_rename("sad", "blue"), _rename("glad", "merry"), "ALTER TYPE mood ADD VALUE 'sad' BEFORE 'blue'")
    blue, merry = (f"{at}, '{it}', '{it}', '{{{it}}}', NULL, 'sad'" for at, it in ((5, "blue"), (6, "merry")))
    site.at_publisher(*(_insert(it, blue, merry) for it in tables))
    good_run(site)
    assert [_ids(site, it) for it in tables] == [[1, 4, 5]] * len(tables)
    for it in tables:
        site.at_publisher(f"DELETE FROM item_{it} WHERE id = 1", f"UPDATE item_{it} SET note = 'sad' WHERE id = 4")
    site.run()
    assert [_ids(site, it) for it in tables] == [[4, 5]] * len(tables)
    with site.topology.distributor() as database:
        articles = database.articles.active(site.publication, database.publications.get("purchasing"))
    assert {it.filter for it in articles} == {now for _, now in filters}
    assert len(list(edits(site.publication, articles))) == len(tables)


@pytest.mark.slow
def test_a_value_that_does_not_tell_its_label_gives_the_article_a_snapshot(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site(databases, tmp_path, ["(two).mood = 'sad'"])
    site.at_publisher(_insert(0, "1, NULL, NULL, NULL, '(sad,x)', NULL", "2, NULL, NULL, NULL, '(glad,x)', NULL"))
    site.at_publisher(_rename("sad", "blue"))
    read = site.read_log()
    read.raise_error()
    assert any("waits for a snapshot" in it and "inside of values of two" in it for it in read.notices), read.notices
    good_run(site)
    site.at_publisher(_insert(0, "3, NULL, NULL, NULL, '(blue,x)', NULL"))
    site.run()
    assert _ids(site, 0) == [1, 3]


@pytest.mark.slow
@pytest.mark.parametrize("apart", [False, True])
def test_labels_that_take_turns_give_the_article_a_snapshot(
    databases: DatabasesFactory, tmp_path: Path, *, apart: bool
) -> None:
    site = _site(databases, tmp_path, ["feeling = 'sad'"])
    site.at_publisher(_insert(0, f"1, {_SAD}", f"2, {_GLAD}"))
    changes = [_rename("sad", "blue"), _rename("glad", "sad"), "ALTER TYPE mood ADD VALUE 'ok' BEFORE 'blue'"]
    site.at_publisher(*(changes if apart else ["; ".join(changes)]))
    site.at_publisher(_insert(0, "3, 'sad', NULL, NULL, NULL, NULL", "4, 'blue', NULL, NULL, NULL, NULL"))
    good_run(site)
    assert site.at_subscriber("SELECT id, feeling::text FROM item_0 ORDER BY id") == [(1, "blue"), (4, "blue")]


@pytest.mark.slow
def test_a_rename_that_the_log_does_not_announce_stops_no_filter(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases, tmp_path, ["feeling = 'sad'"], announced=False)
    site.at_publisher(_insert(0, f"1, {_SAD}", f"2, {_GLAD}"), _rename("sad", "blue"))
    site.at_publisher(_insert(0, "3, 'blue', NULL, NULL, NULL, NULL"))
    read = site.read_log()
    read.raise_error()
    assert read.commands == 2


@pytest.mark.slow
def test_a_filter_that_fails_goes_on_with_another_one(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases, tmp_path, ["1 / id > 0"])
    site.at_publisher(_insert(0, "0, NULL, NULL, NULL, NULL, NULL"))
    stopped = site.read_log()
    assert stopped.error is not None
    assert "run `tranrepl setup FILE`" in (stopped.error.remedy or "")
    article = site.publication.articles[0].model_copy(update={"filter": "id >= 0"})
    site.publication = site.publication.model_copy(update={"articles": [article]})
    site.set_up()
    good_run(site)
    assert site.differences() == []
