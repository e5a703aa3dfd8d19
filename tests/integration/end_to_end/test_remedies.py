"""Remedies lead on: each that names a command is followed until it works, and none leads back to where it came from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import tranrepl
from conftest import DatabasesFactory
from support.databases import Databases
from support.equality import differing_rows
from support.item_site import advance_slot, drop_slot, recreate_slot
from support.observed import distribution_rows
from support.remedies import RUN, SETUP, ByHand, CircleError, Command, Walk, commands_of
from support.site import Site
from support.spark_here import SparkHere
from support.whole_run import good_run
from tranrepl.errors import ErrorReport

_TABLES = (
    "CREATE TABLE vendor (id int PRIMARY KEY, name varchar(20), rating int, note text)",
    "CREATE TABLE other (id int PRIMARY KEY, name text)",
)
_AUTOMATIC = {"sync_type": "automatic"}


@dataclass(frozen=True, slots=True)
class Situation:
    """Something is broken: how, what a person does on the way, and with which commands the walk begins."""

    breaks: ByHand
    by_hand: Mapping[str, ByHand] = field(default_factory=dict)
    edit: ByHand | None = None
    goals: tuple[Command, ...] = (RUN,)
    article: Mapping[str, Any] = field(default_factory=dict)
    subscription: Mapping[str, Any] = field(default_factory=lambda: _AUTOMATIC)
    rows_differ: bool = False
    """Equal rows are not what it ends in."""


def _of(site: Site, **article: Any) -> Site:
    """Return the same site, of a file with another article."""
    first = {**site.publication.articles[0].model_dump(mode="json", exclude_unset=True), **article}
    rest = [it.model_dump(mode="json", exclude_unset=True) for it in site.publication.articles[1:]]
    subscriptions = [it.model_dump(mode="json", exclude_unset=True) for it in site.publication.subscriptions]
    store = site.publication.distributor.store
    return Site(site.databases, store, [first, *rest], site.spark, subscriptions)


def _publisher(*statements: str) -> ByHand:
    def act(site: Site) -> None:
        site.at_publisher(*statements)

    return act


def _subscriber(*statements: str) -> ByHand:
    def act(site: Site) -> None:
        site.at_subscriber(*statements)

    return act


def _distribution(*statements: str) -> ByHand:
    def act(site: Site) -> None:
        distribution_rows(site, *statements)

    return act


def _file(**article: Any) -> ByHand:
    return lambda site: _of(site, **article)


def _all(*acts: ByHand) -> ByHand:
    def act(site: Site) -> Site:
        for it in acts:
            site = it(site) or site
        return site

    return act


def _read(site: Site) -> None:
    """Read the log, so that something is undelivered."""
    site.read_log().raise_error()


def _set_up(site: Site) -> None:
    site.set_up()


def _read_in_part(site: Site) -> None:
    """Read the log up to where the table changed."""
    assert site.read_log().error is not None


def _without_first_article(site: Site) -> Site:
    rest = [it.model_dump(mode="json", exclude_unset=True) for it in site.publication.articles[1:]]
    subscriptions = [it.model_dump(mode="json", exclude_unset=True) for it in site.publication.subscriptions]
    return Site(site.databases, site.publication.distributor.store, rest, site.spark, subscriptions)


_CHANGES = ("UPDATE vendor SET name = 'before' WHERE id < 4", "INSERT INTO other VALUES (2, 'two')")
_AFTER = ("UPDATE vendor SET rating = 7 WHERE id > 3", "INSERT INTO other VALUES (3, 'three')")
_UPDATE = _publisher("UPDATE vendor SET name = 'undelivered'")


def _recreate_slot(site: Site) -> None:
    recreate_slot(site, *_AFTER)


SITUATIONS = {
    "slot dropped": Situation(_all(_publisher(*_CHANGES), drop_slot)),
    "slot dropped, something undelivered": Situation(_all(_publisher(*_CHANGES), _read, drop_slot)),
    "slot made anew": Situation(_all(_publisher(*_CHANGES), _recreate_slot)),
    "slot advanced": Situation(_all(_publisher(*_CHANGES), advance_slot)),
    "slot dropped, and a column": Situation(
        _all(_publisher(*_CHANGES, "ALTER TABLE vendor DROP COLUMN note", *_AFTER), drop_slot)
    ),
    "distribution database restored": Situation(
        _all(
            _distribution("CREATE TABLE kept AS SELECT * FROM mspublications"),
            _publisher(*_CHANGES),
            _read,
            _distribution(
                "DELETE FROM msrepl_batches",
                "UPDATE mspublications SET registered_to = (SELECT registered_to FROM kept)",
            ),
        )
    ),
    "watermark gone": Situation(_all(_publisher(*_CHANGES), _subscriber("DELETE FROM msreplication_subscriptions"))),
    "column dropped": Situation(_publisher(*_CHANGES, "ALTER TABLE vendor DROP COLUMN note", *_AFTER)),
    "column dropped, and read up to there": Situation(
        _all(_publisher(*_CHANGES, "ALTER TABLE vendor DROP COLUMN note", *_AFTER), _read_in_part)
    ),
    "column dropped, nothing else": Situation(_publisher("ALTER TABLE vendor DROP COLUMN note")),
    "column dropped from a column list": Situation(
        _publisher(*_CHANGES, "ALTER TABLE vendor DROP COLUMN note", *_AFTER),
        edit=_file(columns=["id", "name", "rating"]),
        article={"columns": ["id", "name", "rating", "note"]},
    ),
    "column renamed": Situation(
        _publisher(*_CHANGES, "ALTER TABLE vendor RENAME COLUMN note TO remark", *_AFTER),
        {"setup": _subscriber("ALTER TABLE vendor RENAME COLUMN note TO remark")},
        goals=(RUN,),
    ),
    "column retyped": Situation(
        _publisher(*_CHANGES, "ALTER TABLE vendor ALTER COLUMN rating TYPE bigint USING rating * 10", *_AFTER),
        {"setup": _subscriber("ALTER TABLE vendor ALTER COLUMN rating TYPE bigint")},
    ),
    "column retyped, no snapshots": Situation(
        _publisher(*_CHANGES, "ALTER TABLE vendor ALTER COLUMN rating TYPE bigint", *_AFTER),
        {"setup": _subscriber("ALTER TABLE vendor ALTER COLUMN rating TYPE bigint")},
        subscription={},
    ),
    "column dropped and another added": Situation(
        _publisher(*_CHANGES, "ALTER TABLE vendor DROP COLUMN note, ADD COLUMN grade int DEFAULT 3", *_AFTER),
        {"setup": _subscriber("ALTER TABLE vendor ADD COLUMN grade int")},
    ),
    "column dropped and added anew": Situation(
        _publisher(*_CHANGES, "ALTER TABLE vendor DROP COLUMN note, ADD COLUMN note text DEFAULT 'new'", *_AFTER)
    ),
    "table dropped": Situation(
        _publisher(*_CHANGES, "DROP TABLE vendor"), edit=_without_first_article, rows_differ=True
    ),
    "table dropped and created anew": Situation(
        _publisher(*_CHANGES, "DROP TABLE vendor", _TABLES[0], "INSERT INTO vendor VALUES (5, 'new', 5, NULL)")
    ),
    "table rewritten": Situation(
        _publisher(*_CHANGES, "ALTER TABLE vendor ALTER COLUMN rating TYPE int USING rating * 10", *_AFTER)
    ),
    "table rewritten, its rows not to be touched": Situation(
        _publisher(*_CHANGES, "ALTER TABLE vendor ALTER COLUMN rating TYPE int USING rating * 10"),
        edit=_file(pre_creation_cmd="truncate"),
        article={"pre_creation_cmd": "none"},
    ),
    "table rewritten, to be stopped": Situation(
        _publisher(*_CHANGES, "ALTER TABLE vendor ALTER COLUMN rating TYPE int USING rating * 10"),
        article={"on_unknown_rows": "stop"},
        goals=(RUN,),
    ),
    "replica identity changed": Situation(
        _publisher(*_CHANGES, "ALTER TABLE vendor REPLICA IDENTITY DEFAULT", *_AFTER),
        article={"upd_cmd": "XCALL"},
        goals=(RUN,),
    ),
    "article changed with something undelivered": Situation(
        _all(_UPDATE, _read, _file(upd_cmd="CALL")),
    ),
    "article changed with something unread": Situation(_all(_UPDATE, _file(columns=["id", "name"]))),
    "filter changed with something undelivered": Situation(
        _all(_UPDATE, _read, _file(filter="id < 100")),
    ),
    "filter changed, rows not to be touched": Situation(
        _all(_UPDATE, _file(filter="id < 100")),
        edit=_file(pre_creation_cmd="delete"),
        article={"pre_creation_cmd": "none"},
    ),
    "snapshot interrupted": Situation(
        _all(
            _UPDATE,
            _distribution(
                "INSERT INTO msarticle_subscriptions (subscription_id, article, status, subscription_seqno) "
                "SELECT subscription_id, 'public.vendor', 'initiated', '\\x00' FROM mssubscriptions "
                "ON CONFLICT (subscription_id, article) DO UPDATE SET status = 'initiated'"
            ),
        ),
        goals=(RUN, Command("distribute"), Command("validate")),
    ),
    "snapshot waits, and a column goes": Situation(
        _all(
            _publisher("ALTER TABLE vendor ADD COLUMN grade int DEFAULT 3"),
            _subscriber("ALTER TABLE vendor ADD COLUMN grade int"),
            _set_up,
            _publisher(*_CHANGES, "ALTER TABLE vendor DROP COLUMN note", *_AFTER),
        ),
    ),
    "subscription deactivated": Situation(
        _all(_UPDATE, _read, _distribution("UPDATE mssubscriptions SET status = 'inactive'")),
        goals=(RUN, Command("distribute")),
    ),
    "subscription deactivated, and a column gone": Situation(
        _all(
            _publisher(*_CHANGES, "ALTER TABLE vendor DROP COLUMN note", *_AFTER),
            _read_in_part,
            _distribution("UPDATE mssubscriptions SET status = 'inactive'"),
        ),
    ),
    "subscriber of before its snapshot": Situation(
        _all(_UPDATE, _subscriber("DELETE FROM msreplication_snapshots")), goals=(RUN, Command("distribute"))
    ),
    "article not set up": Situation(_file(columns=["id", "name", "rating"]), goals=(RUN, Command("log-reader"))),
    "rows that differ": Situation(
        _subscriber("UPDATE vendor SET name = 'wrong'"), goals=(Command("validate"),), article={}
    ),
    "truncate refused": Situation(
        _publisher(*_CHANGES, "TRUNCATE vendor", *_AFTER),
        {"setup": _file(truncate="replicate")},
        article={"truncate": "error"},
        goals=(RUN,),
    ),
}
_TWO_WAYS = ("table rewritten, to be stopped", "slot dropped", "slot made anew", "distribution database restored")
_FROM_SETUP_TOO = (
    "column dropped",
    "column dropped, and read up to there",
    "column retyped",
    "table rewritten, its rows not to be touched",
    "article changed with something undelivered",
    "slot dropped, and a column",
)
_COMBINED = (
    "slot dropped, something undelivered",
    "slot dropped, and a column",
    "column dropped, and read up to there",
    "column dropped, nothing else",
    "column retyped, no snapshots",
    "column dropped and another added",
    "table rewritten, its rows not to be touched",
    "filter changed, rows not to be touched",
    "snapshot waits, and a column goes",
    "subscription deactivated, and a column gone",
)
_ALSO_IN_REINITIALIZATION = ("slot dropped", "slot made anew", "slot advanced", "distribution database restored")


def _marks(name: str, goal: Command, choice: int) -> list[pytest.MarkDecorator]:
    """Return `slow` where a situation is met once more, combines others, or `test_publication_reinitialization` meets
    it."""
    elsewhere = name in _COMBINED or name in _ALSO_IN_REINITIALIZATION
    again = choice > 0 or goal != SITUATIONS[name].goals[0] or elsewhere
    return [pytest.mark.slow] if again else []


_CASES = [
    pytest.param(
        *(situation, goal, choice),
        id=f"{name}: {goal.verb}{f', way {choice + 1}' if choice else ''}",
        marks=_marks(name, goal, choice),
    )
    for name, situation in SITUATIONS.items()
    for goal in (*situation.goals, *([SETUP] if name in _FROM_SETUP_TOO else []))
    for choice in ((0, 1) if name in _TWO_WAYS else (0,))
]


@pytest.fixture
def ends(databases: DatabasesFactory) -> Databases:
    return databases()


def _site(ends: Databases, tmp_path: Path, situation: Situation) -> Site:
    """Return a site with ten vendors at both ends, and changes after them."""
    vendor = {"source": "public.vendor", "pre_creation_cmd": "delete", **situation.article}
    other = {"source": "public.other", "pre_creation_cmd": "delete"}
    subscription = {"name": "reporting", "connection": "subscriber", **situation.subscription}
    site = Site(ends, tmp_path / "store", [vendor, other], SparkHere(), [subscription])
    site.at_publisher(*_TABLES)
    if not situation.subscription:
        site.set_up()
    site.at_publisher("INSERT INTO vendor SELECT n, 'name ' || n, n, 'note' FROM generate_series(1, 10) n")
    site.set_up()
    good_run(site)
    site.at_publisher("INSERT INTO other VALUES (1, 'one')", "UPDATE vendor SET note = 'changed' WHERE id = 1")
    good_run(site)
    return site


@pytest.mark.slow_after(9)
@pytest.mark.parametrize(("situation", "goal", "choice"), _CASES)
def test_every_remedy_leads_to_where_it_works(
    situation: Situation, goal: Command, choice: int, ends: Databases, tmp_path: Path
) -> None:
    site = _site(ends, tmp_path, situation)
    site = situation.breaks(site) or site
    walk = Walk(site, situation.by_hand, situation.edit, choice)
    walk.until(goal)
    # Then everything works, and stays so.
    if goal != RUN:
        walk.until(RUN)
    good_run(walk.site)
    if not situation.rows_differ:
        assert differing_rows(walk.site) == {}, "\n".join(walk.trail)


# The walk itself


def _walk(answers: Mapping[str, list[str | None]], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Follow remedies through commands that fail with these answers, one after the other; None stands for success."""

    def execute(_: object, command: Command) -> list[ErrorReport]:
        remedy = answers[command.verb].pop(0)
        error = ErrorReport(kind="configuration", message=f"{command.verb} failed", remedy=remedy)
        return [] if remedy is None else [error]

    monkeypatch.setattr("support.remedies.execute_command", execute)
    nowhere: Any = None
    return Walk(nowhere).until(RUN)


def test_a_circle_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: dict[str, list[str | None]] = {
        "run": ["`tranrepl setup FILE`", "`tranrepl setup FILE`"],
        "setup": ["`tranrepl run FILE`, then `tranrepl setup FILE`"],
    }
    with pytest.raises(CircleError):
        _walk(answers, monkeypatch)


def test_a_way_that_leads_on_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: dict[str, list[str | None]] = {
        "run": ["`tranrepl setup FILE`", None],
        "setup": ["`tranrepl snapshot FILE -s a`; then `tranrepl setup FILE`", None],
        "snapshot": [None],
    }
    trail = _walk(answers, monkeypatch)
    assert [it.partition(" FILE")[0] for it in trail] == ["run", "setup", "snapshot", "setup", "run"]


def test_a_remedy_without_a_command_ends_the_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match="ends without a command"):
        _walk({"run": ["ask somebody"]}, monkeypatch)


def test_ways_and_sequences_are_told_apart() -> None:
    sequence, way = Command("run"), Command("setup")
    assert commands_of("`tranrepl run FILE`, then `tranrepl setup FILE`") == [[sequence, way]]
    assert commands_of("`tranrepl run FILE`, or `tranrepl setup FILE`") == [[sequence], [way]]
    option = Command("reinitialize", " -s reporting --article public.vendor")
    assert commands_of("`tranrepl reinitialize FILE -s reporting --article public.vendor` it") == [[option]]
    assert (option.option("-s"), option.option("--article", "-a")) == ("reporting", "public.vendor")


_NOT_OF_A_FILE = ("class-archive", "schema", "script")


def test_every_command_that_the_library_names_can_be_pasted() -> None:
    # Commands are `tranrepl VERB FILE …`, in backticks.
    named = re.compile(r"`tranrepl (?P<verb>[a-z-]+)(?P<file>(?: FILE| \{file\})?)")
    folder = Path(tranrepl.__file__).parent
    wrong = [
        f"{path.relative_to(folder)}: tranrepl {found['verb']}"
        for path in sorted(folder.rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if not line.lstrip().startswith(('"""', "#"))
        for found in named.finditer(line)
        if not found["file"] and found["verb"] not in _NOT_OF_A_FILE
    ]
    assert wrong == []
