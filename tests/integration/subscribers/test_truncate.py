"""TRUNCATE of several tables by one statement, where the Subscriber's own foreign keys act on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from conftest import DatabasesFactory
from support.command_history import Column, History, Image, seqno
from support.in_process import deliver_commands, read_commands, replicate
from support.mariadb import MariaDbServer
from support.site import Site as WholeSite, execute
from support.subscribers import KEY, STATEMENTS, Execute, Site
from support.thread_streams import DyingVote, deliver_in_threads
from tranrepl.distribution.delivery import Delivery, deliver, deliver_pieces
from tranrepl.distribution.recording import SkippedCommands
from tranrepl.distribution.stream_commands import Divider, left_over
from tranrepl.errors import ErrorKind, ErrorReport
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import FIRST_XACT_SEQNO
from tranrepl.settings.publication import Apply, StreamAssignment
from tranrepl.subscriber.applier_options import ApplierOptions
from tranrepl.subscriber.batching.commit_batches import CommitLimits
from tranrepl.subscriber.constraints import Constraints
from tranrepl.subscriber.registry import dialect_of

COLUMNS = (Column("id", "integer", key=1), Column("inside", "integer"))
TABLES = ("area", "shelf", "item")
"""Each refers to the one before it."""
LIMITS = CommitLimits(1000, 10_000)


def _tables(site: Site, *more: str) -> list[RegisteredArticle]:
    """Return tables with rows, each row within one of the table before."""
    site.execute(
        "CREATE TABLE area (id int PRIMARY KEY, inside int)",
        "CREATE TABLE shelf (id int PRIMARY KEY, inside int, FOREIGN KEY (inside) REFERENCES area (id))",
        "CREATE TABLE item (id int PRIMARY KEY, inside int, FOREIGN KEY (inside) REFERENCES shelf (id))",
        *more,
        *(f"INSERT INTO {table} VALUES ({number}, {number})" for table in TABLES for number in range(1, 4)),
    )
    return [site.article(table, COLUMNS) for table in TABLES]


def _content(site: Site) -> list[object]:
    return [site.rows(table) for table in TABLES]


def _row(number: int, inside: int | None) -> Image:
    return [str(number), None if inside is None else str(inside)]


def _emptied_and_filled(articles: Sequence[RegisteredArticle]) -> History:
    """Return a history that empties parents first, as `TRUNCATE area CASCADE` does, among changes that go in bulk."""
    area, shelf, item = articles
    history = History().insert(area, _row(4, 4)).insert(shelf, _row(4, 4)).insert(item, _row(4, 4))
    history.transaction().update(item, _row(4, 4), _row(4, 1))
    history.truncate(area).truncate(shelf).truncate(item)
    history.insert(area, _row(1, 7)).insert(shelf, _row(2, 1)).insert(item, _row(3, 2))
    return history.transaction().insert(item, _row(4, 2))


_EMPTIED_AND_FILLED = [[(1, 7)], [(2, 1)], [(3, 2), (4, 2)]]


@pytest.mark.parametrize("apply", list(Apply))
def test_tables_that_refer_to_one_another_are_emptied_together(plain_site: Site, apply: Apply) -> None:
    history = _emptied_and_filled(_tables(plain_site))
    result = plain_site.deliver(history, options=ApplierOptions(apply=apply))
    assert (result.error, result.commands, result.fallbacks) == (None, len(history.rows), {})
    assert _content(plain_site) == _EMPTIED_AND_FILLED


def test_streams_empty_them_together(plain_site: Site) -> None:
    site, history, delivery, divider = _over_streams(plain_site)
    result = deliver_in_threads(delivery, history.table(), divider)
    assert (result.error, result.commands) == (None, len(history.rows))
    assert _content(site) == _EMPTIED_AND_FILLED


def test_streams_that_died_among_their_commits_are_finished(plain_site: Site) -> None:
    """Finish them, however the commands arrive then."""
    site, history, delivery, divider = _over_streams(plain_site)
    died = deliver_in_threads(
        delivery, history.table(), divider, vote=lambda vote, stream: DyingVote(vote) if stream == 0 else vote
    )
    with dialect_of(site.connection).subscriber(site.connection, KEY, "test") as subscriber:
        unfinished = subscriber.position().unfinished
    assert (died.commands, unfinished is None) == (0, False)
    assert unfinished is not None
    left = left_over(history.table().to_batches(max_chunksize=1), unfinished, site.articles)
    finished = deliver_pieces(replace(delivery, finishing=unfinished), left)
    assert (finished.error, finished.commands) == (None, len(history.rows))
    assert (_content(site), site.watermark()) == (_EMPTIED_AND_FILLED, seqno(history.xact))


def _over_streams(site: Site) -> tuple[Site, History, Delivery, Divider]:
    if not dialect_of(site.connection).capabilities.streams:
        pytest.skip("no streams there")
    history = _emptied_and_filled(_tables(site))
    with dialect_of(site.connection).subscriber(site.connection, KEY, "test") as subscriber:
        subscriber.set_up_streams(2)
    delivery = Delivery(site.connection, KEY, site.articles, FIRST_XACT_SEQNO, LIMITS)
    return site, history, delivery, Divider(site.articles, 2, StreamAssignment.KEY, Constraints(), LIMITS)


def test_of_tables_that_are_not_emptied_whole_the_same_rows_go(plain_site: Site) -> None:
    # A row filter says which rows are the article's.
    site = plain_site
    _tables(site)
    site.articles.clear()
    area, shelf, item = (site.article(table, COLUMNS, filter="id < 3") for table in TABLES)
    assert site.deliver(History().truncate(area).truncate(item).truncate(shelf)).error is None
    assert _content(site) == [[(3, 3)]] * 3


def test_rows_of_a_table_that_is_not_emptied_stop_it_at_its_own_command(plain_site: Site) -> None:
    site = plain_site
    area, shelf, item = _tables(
        site,
        "CREATE TABLE mine (id int PRIMARY KEY, shelf int, FOREIGN KEY (shelf) REFERENCES shelf (id))",
    )
    site.execute("INSERT INTO mine VALUES (1, 2)")
    before = _content(site)
    history = History().insert(item, _row(9, 3)).truncate(area).truncate(shelf).truncate(item)
    error = site.deliver(history).error
    assert error is not None
    assert (error.kind, error.article) == (ErrorKind.DATA, "public.shelf")
    assert (error.xact_seqno, error.command_id) == (seqno(1).hex(), 3)
    assert (_content(site), site.watermark()) == (before, FIRST_XACT_SEQNO)


@dataclass(slots=True)
class _Recorded:
    reports: list[ErrorReport] = field(default_factory=list)

    def record(self, errors: Sequence[ErrorReport]) -> None:
        self.reports.extend(errors)


def test_of_several_the_one_that_fails_is_skipped(plain_site: Site) -> None:
    if plain_site.kind.database == "sqlite":
        pytest.skip("SQLite has one number for all constraints, which is none of SQL Server's")
    site, recorded = plain_site, _Recorded()
    area, shelf, item = _tables(
        site,
        "CREATE TABLE mine (id int PRIMARY KEY, area int, FOREIGN KEY (area) REFERENCES area (id))",
    )
    site.execute("INSERT INTO mine VALUES (1, 2)")
    options = ApplierOptions(skip_errors=frozenset({"547"}))
    skipped = cast("SkippedCommands", recorded)
    delivery = Delivery(site.connection, KEY, site.articles, FIRST_XACT_SEQNO, LIMITS, options, skipped)
    history = History().truncate(area).truncate(shelf).truncate(item).insert(item, _row(5, None))
    result = deliver(delivery, history.table().to_batches())
    assert (result.error, result.skipped) == (None, 1)
    assert [(it.article, it.command_id) for it in recorded.reports] == [("public.area", 1)]
    assert _content(site) == [[(1, 1), (2, 2), (3, 3)], [], [(5, None)]]


def test_tables_that_do_not_refer_to_one_another_are_emptied_in_order(plain_site: Site) -> None:
    # What a trigger of the Subscriber's writes meanwhile is emptied after it.
    site = plain_site
    site.execute(
        "CREATE TABLE area (id int PRIMARY KEY, inside int)",
        "CREATE TABLE gone (id int PRIMARY KEY, inside int)",
        *_TELLING[site.kind.database],
        "INSERT INTO area VALUES (1, 1), (2, 2)",
        "INSERT INTO gone VALUES (7, 7)",
    )
    area, gone = (site.article(table, COLUMNS) for table in ("area", "gone"))
    assert site.deliver(History().truncate(area).truncate(gone)).error is None
    assert (site.rows("area"), site.rows("gone")) == ([], [])
    site.execute("INSERT INTO area VALUES (1, 1), (2, 2)")
    history = History(xact=1).transaction().truncate(gone).truncate(area)
    assert site.deliver(history, seqno(1)).error is None
    assert (site.rows("area"), site.rows("gone")) == ([], [(1, 1), (2, 2)])


_TELLING = {
    "postgres": (
        """CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN INSERT INTO gone VALUES (OLD.id, OLD.inside); RETURN OLD; END $$""",
        "CREATE TRIGGER tell AFTER DELETE ON area FOR EACH ROW EXECUTE FUNCTION tell()",
    ),
    "mariadb": ("CREATE TRIGGER tell AFTER DELETE ON area FOR EACH ROW INSERT INTO gone VALUES (OLD.id, OLD.inside)",),
    "sqlite": (
        "CREATE TRIGGER tell AFTER DELETE ON area FOR EACH ROW BEGIN INSERT INTO gone VALUES (OLD.id, OLD.inside); END",
    ),
    "mssql": ("create trigger tell on area after delete as insert into gone select id, inside from deleted",),
}


# With a real Publisher, whose statement it is


@dataclass(frozen=True, slots=True)
class _Place:
    site: WholeSite
    execute: Execute

    def differing(self) -> list[str]:
        """Return the tables that differ from the Publisher's."""
        tables = [it.source.table for it in self.site.publication.articles]
        query = "SELECT * FROM {} ORDER BY 1"
        return [it for it in tables if self.site.at_publisher(query.format(it)) != self.execute(query.format(it))]


_REFERRING = (
    "ALTER TABLE shelf ADD CONSTRAINT shelf_inside FOREIGN KEY (inside) REFERENCES area (id)",
    "ALTER TABLE item ADD CONSTRAINT item_inside FOREIGN KEY (inside) REFERENCES shelf (id)",
)
_ROUND = "ALTER TABLE area ADD CONSTRAINT area_inside FOREIGN KEY (inside) REFERENCES item (id)"
_WITHIN_ITSELF = "ALTER TABLE item ADD CONSTRAINT item_after FOREIGN KEY (after) REFERENCES item (id)"


def _place(
    request: pytest.FixtureRequest, kind: str, settings: Sequence[Mapping[str, object]] = ({}, {}, {}), **more: Any
) -> _Place:
    """Return a place whose tables are at both ends, with equal rows and foreign keys."""
    databases: DatabasesFactory = request.getfixturevalue("databases")
    home: Path = request.getfixturevalue("tmp_path")
    ends, schema = databases(), "public"
    run: Execute = lambda *statements: execute(ends.subscriber, *statements)  # noqa: E731
    if kind == "mariadb":
        server: MariaDbServer = request.getfixturevalue("mariadb")
        schema = request.getfixturevalue("mariadb_database")
        ends = replace(ends, subscriber=server.connection(schema))
        run = lambda *statements: server.execute(*statements, database=schema)  # noqa: E731
    commands = STATEMENTS if kind == "mariadb" else {}
    articles = [
        {"source": f"public.{table}", "destination": f"{schema}.{table}", **commands, **own}
        for table, own in zip(TABLES, settings, strict=True)
    ]
    subscription = {"name": "reporting", "connection": "subscriber", **more}
    site = WholeSite(ends, home / "store", articles, subscriptions=[subscription])
    site.at_publisher(*(f"CREATE TABLE {it} (id int PRIMARY KEY, inside int, after int)" for it in TABLES))
    site.set_up()
    _fill(site)
    replicate(site)
    for act in (site.at_publisher, run):
        act(*_REFERRING)
    place = _Place(site, run)
    assert place.differing() == []
    return place


def _fill(site: WholeSite) -> None:
    site.at_publisher(
        *(f"INSERT INTO {it} SELECT n, 1 + n % 9, nullif(n - 1, 0) FROM generate_series(1, 9) n" for it in TABLES)
    )


@pytest.fixture(params=["postgres", "mariadb"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


_STATEMENTS = (
    "TRUNCATE area, shelf, item",
    "TRUNCATE item, area, shelf",
    "TRUNCATE area CASCADE",
    "BEGIN; INSERT INTO item VALUES (10, 1); TRUNCATE shelf CASCADE; INSERT INTO shelf VALUES (1, 1); COMMIT",
    "BEGIN; TRUNCATE item; TRUNCATE shelf CASCADE; TRUNCATE area CASCADE; INSERT INTO area VALUES (1, 1); COMMIT",
)


def test_what_one_statement_truncated_is_emptied(request: pytest.FixtureRequest, kind: str) -> None:
    place = _place(request, kind)
    for statement in _STATEMENTS:
        place.site.at_publisher(statement)
        replicate(place.site)
        assert (statement, place.differing()) == (statement, [])
        place.site.at_publisher("TRUNCATE area, shelf, item")
        _fill(place.site)
        replicate(place.site)
        assert place.differing() == []


@pytest.mark.parametrize("procedures", [True, False])
def test_tables_that_refer_to_one_another_in_a_circle_are_emptied(
    request: pytest.FixtureRequest, procedures: bool
) -> None:
    place = _place(request, "postgres", [{} if procedures else STATEMENTS] * 3)
    for act in (place.site.at_publisher, place.execute):
        act(_ROUND, _WITHIN_ITSELF)
    place.site.at_publisher(
        "BEGIN; UPDATE item SET after = 10 - id; TRUNCATE area CASCADE; INSERT INTO area VALUES (1, NULL); COMMIT",
        "INSERT INTO shelf VALUES (1, 1)",
    )
    replicate(place.site)
    assert place.differing() == []


def test_where_foreign_keys_do_not_act_any_order_will_do(request: pytest.FixtureRequest, kind: str) -> None:
    place = _place(request, kind, not_for_replication=True)
    for act in (place.site.at_publisher, place.execute):
        act(_ROUND, _WITHIN_ITSELF)
    place.site.at_publisher("TRUNCATE area CASCADE", "INSERT INTO area VALUES (1, NULL)")
    replicate(place.site)
    assert place.differing() == []


def test_a_table_whose_truncate_is_ignored_keeps_its_rows(request: pytest.FixtureRequest, kind: str) -> None:
    place = _place(request, kind, [{}, {}, {"truncate": "ignore"}])
    items = place.execute("SELECT * FROM item ORDER BY 1")
    # What refers to rows that go keeps them from going, as it did at the Publisher.
    place.site.at_publisher("TRUNCATE area CASCADE")
    error = deliver_commands(place.site, read_commands(place.site)).error
    assert error is not None
    assert (error.kind, error.article) == (ErrorKind.DATA, "public.shelf")
    assert place.execute("SELECT * FROM item ORDER BY 1") == items


def test_a_table_whose_truncate_is_ignored_may_be_among_others(request: pytest.FixtureRequest, kind: str) -> None:
    place = _place(request, kind, [{"truncate": "ignore"}, {}, {}])
    areas = place.execute("SELECT * FROM area ORDER BY 1")
    place.site.at_publisher("TRUNCATE area CASCADE", "INSERT INTO shelf VALUES (1, NULL)")
    replicate(place.site)
    assert place.differing() == ["area"]
    assert place.execute("SELECT * FROM area ORDER BY 1") == areas


def test_a_table_whose_truncate_is_an_error_stops_all_of_the_statement(request: pytest.FixtureRequest) -> None:
    place = _place(request, "postgres", [{}, {}, {"truncate": "error"}])
    before = [place.execute(f"SELECT * FROM {it} ORDER BY 1") for it in TABLES]
    place.site.at_publisher("TRUNCATE area CASCADE")
    read = read_commands(place.site)
    assert read.account.refusal is not None
    assert "public.item: the table was truncated" in read.account.refusal.message
    assert read.texts() == []
    assert [place.execute(f"SELECT * FROM {it} ORDER BY 1") for it in TABLES] == before


def test_a_trigger_on_delete_sees_every_row_once(request: pytest.FixtureRequest, kind: str) -> None:
    place = _place(request, kind)
    place.execute("CREATE TABLE gone (id int, inside int)")
    place.execute(*(it.replace("area", "item") for it in _TELLING[kind]))
    items = place.execute("SELECT id, inside FROM item ORDER BY 1")
    place.site.at_publisher("TRUNCATE area CASCADE")
    replicate(place.site)
    assert place.differing() == []
    assert place.execute("SELECT * FROM gone ORDER BY 1") == items
