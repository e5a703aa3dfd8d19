"""What is printed after each kind of error, for each kind of article, does what its words say where it is printed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import DatabasesFactory
from support.databases import connection_environment
from support.shell import Outcome, publication_file, run_submitted_jobs_here, typed
from support.site import Site
from support.spark_here import SparkHere
from support.subscribers import STATEMENTS, Site as SubscriberSite
from tranrepl.distributor.database import UnknownRows

_TABLE = "CREATE TABLE item (id int PRIMARY KEY, note text)"
_ROWS = "SELECT * FROM item ORDER BY id"
_CUSTOM = """CREATE PROCEDURE own_ins(id int, note text) LANGUAGE plpgsql AS $$
BEGIN
  IF own_ins.note = 'refused' AND EXISTS (SELECT FROM strict) THEN RAISE 'not this row'; END IF;
  INSERT INTO item VALUES (own_ins.id, own_ins.note);
END $$"""
_PRINTED = re.compile(r"^tranrepl .*$|`tranrepl [^`]*`", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ArticleKind:
    article: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "postgres procedures"
    made: tuple[str, ...] = ()
    """What is at the Subscriber before."""
    repaired: bool = True


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """What makes an error, and what mends it at the Subscriber, of rows `old` and `new`; its number."""

    number: str
    change: str
    cause: str
    mend: str
    keeps_rows_out: bool = False
    """What is wrong is no row, and keeps the Publisher's rows out until it is mended, also those of a repair."""
    kinds: str = "postgres mariadb sqlite"


ARTICLES = {
    "generated procedures": ArticleKind(),
    "statements": ArticleKind(STATEMENTS),
    "custom procedure": ArticleKind({"ins_cmd": "CALL own_ins"}, made=(_TABLE, _CUSTOM), repaired=False),
    "no deletes": ArticleKind({"del_cmd": "NONE"}, repaired=False),
    "SQLite": ArticleKind(STATEMENTS, kind="sqlite statements"),
    "MariaDB": ArticleKind(kind="mariadb procedures"),
}
ERRORS = {
    "row is there": ErrorKind(
        "2627",
        "INSERT INTO item VALUES ({new}, 'new')",
        "INSERT INTO item VALUES ({new}, 'mine')",
        "DELETE FROM item WHERE id = {new}",
    ),
    "row is missing": ErrorKind(
        "20598",
        "UPDATE item SET note = 'new' WHERE id = {old}",
        "DELETE FROM item WHERE id = {old}",
        "INSERT INTO item VALUES ({old}, 'mine')",
    ),
    "a constraint refuses the row": ErrorKind(
        "547",
        "INSERT INTO item VALUES ({new}, 'unwanted{new}')",
        "ALTER TABLE item ADD CONSTRAINT refusing CHECK (note <> 'unwanted{new}')",
        "ALTER TABLE item DROP CONSTRAINT refusing",
        keeps_rows_out=True,
        kinds="postgres mariadb",
    ),
}
_RAISES = ErrorKind(
    "50000",
    "INSERT INTO item VALUES ({new}, 'refused')",
    "INSERT INTO strict VALUES (1)",
    "DELETE FROM strict",
)
CASES = [
    *(
        pytest.param(it, error, id=f"{name}, {what}")
        for name, it in ARTICLES.items()
        for what, error in ERRORS.items()
        if it.kind.split()[0] in error.kinds
    ),
    pytest.param(ARTICLES["custom procedure"], _RAISES, id="custom procedure, which raises"),
]


@dataclass(frozen=True, slots=True)
class _Shell:
    site: Site
    file: Path
    kind: ArticleKind
    environment: Mapping[str, str]
    at_subscriber: Callable[..., Any]

    def run(self, *arguments: str) -> Outcome:
        return typed(*arguments, environment=self.environment)

    def paste(self, line: str) -> Outcome:
        name, *arguments = shlex.split(line.strip("`"))
        assert name == "tranrepl"
        return self.run(*arguments)

    def differs(self) -> bool:
        return bool(list(self.at_subscriber(_ROWS)) != self.site.at_publisher(_ROWS))


def _printed(outcome: Outcome) -> dict[str, str]:
    """Return the commands to paste, by verb."""
    lines = [line.strip() for line in outcome.err.splitlines()]
    found = [line for line in lines if line.startswith("tranrepl ")]
    found += [it for line in lines if not line.startswith(("tranrepl ", "#")) for it in _PRINTED.findall(line)]
    return {it.strip("`").split()[1]: it for it in found}


@pytest.fixture
def shell(
    request: pytest.FixtureRequest,
    databases: DatabasesFactory,
    make_site: Callable[[str], SubscriberSite],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> _Shell:
    kind: ArticleKind = request.param
    end = make_site(kind.kind)
    articles = [
        {
            "source": "public.item",
            "destination": f"{end.schema}.item",
            "pre_creation_cmd": "delete",
            **kind.article,
        }
    ]
    subscriptions = [{"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}]
    site = Site(databases(), tmp_path / "store", articles, SparkHere(), subscriptions, replicate_ddl=True)
    site.connections["subscriber"] = end.connection
    environment = site.databases.environment | connection_environment([end.connection])
    file = publication_file(tmp_path, articles, subscriptions=subscriptions, replicate_ddl=True)
    run_submitted_jobs_here(site.spark, monkeypatch)
    site.at_publisher(_TABLE, "INSERT INTO item VALUES (1, 'first'), (2, 'second')")
    if kind.made:
        end.execute("CREATE TABLE strict (a int)", *kind.made)
    site.set_up()
    shell = _Shell(site, file, kind, environment, end.execute)
    assert shell.run("run", str(file)).status == 0
    return shell


@pytest.mark.slow_after(3)
@pytest.mark.parametrize(("shell", "error"), CASES, indirect=["shell"])
def test_each_printed_command_does_what_its_words_say(shell: _Shell, error: ErrorKind) -> None:
    file = str(shell.file)

    def stop(**ids: int) -> dict[str, str]:
        shell.at_subscriber(error.cause.format(**ids))
        shell.site.at_publisher(error.change.format(**ids))
        stopped = shell.run("run", file)
        assert stopped.status == 1
        # SQLite's own messages have no number.
        assert error.number in stopped.err or "sqlite" in shell.kind.kind, stopped.err
        printed = _printed(stopped)
        assert list(printed) == ["browse", "run", "skip", *(["validate"] if shell.kind.repaired else [])], stopped.err
        told = shell.run("status", file)
        assert (told.status, [it for it in printed.values() if it not in told.out]) == (2, []), told.out
        return printed

    printed = stop(old=1, new=3)
    shown = shell.paste(printed["browse"])
    assert shown.status == 0
    assert any(it in shown.out for it in ("item", "own_ins")), shown.out
    assert shell.paste(printed["run"]).status == 1, "nothing is mended yet"
    shell.at_subscriber(error.mend.format(old=1, new=3))
    assert shell.paste(printed["run"]).status == 0
    assert (shell.differs(), shell.run("status", file).status) == (False, 0)

    printed = stop(old=2, new=4)
    assert shell.paste(printed["skip"]).status == 0
    assert shell.differs()
    if error.keeps_rows_out:
        if shell.kind.repaired:
            refused = shell.paste(printed["validate"])
            assert (refused.status, error.number in refused.err) == (1, True), refused.err
        shell.at_subscriber(error.mend)
    if shell.kind.repaired:
        assert shell.paste(printed["validate"]).status == 0
        assert not shell.differs()
    assert shell.paste(printed["run"]).status == 0
    assert shell.run("status", file).status == 0


@pytest.mark.parametrize(
    "shell",
    [pytest.param(it, id=name) for name, it in ARTICLES.items() if it.kind.startswith("postgres")],
    indirect=True,
)
def test_a_validation_that_fails_is_repaired_or_acknowledged(shell: _Shell) -> None:
    file = str(shell.file)
    shell.at_subscriber("UPDATE item SET note = 'mine'")
    failed = shell.run("validate", file)
    assert failed.status == 1
    ((verb, command),) = _printed(failed).items()
    assert verb == ("validate" if shell.kind.repaired else "status"), failed.err
    assert shell.run("status", file).status == 2
    done = shell.paste(command)
    assert done.status == 0, done.err
    assert shell.differs() is not shell.kind.repaired
    status = shell.run("status", file)
    assert status.status == 0
    assert ("acknowledged by " in status.out) is not shell.kind.repaired


@pytest.mark.parametrize("shell", [pytest.param(it, id=name) for name, it in ARTICLES.items()], indirect=True)
def test_each_way_on_of_a_stopped_article_is_one(shell: _Shell) -> None:
    def stop() -> dict[str, str]:
        with shell.site.topology.distributor() as database:
            subscription = database.subscriptions.get(database.publications.get("purchasing"), "reporting")
            database.snapshots.stop_article(subscription, "public.item", UnknownRows("its rows are not known"))
        return _printed(shell.run("run", str(shell.file)))

    ways = stop()
    assert list(ways) == ["validate", "reinitialize"]
    for verb, command in ways.items():
        stop()
        if verb == "reinitialize" or shell.kind.repaired:
            shell.at_subscriber("UPDATE item SET note = 'mine'")
        done = shell.paste(command)
        assert done.status == 0, done.err
        assert shell.run("run", str(shell.file)).status == 0
        assert not shell.differs()


_ALTERED = pytest.mark.parametrize(
    "shell",
    [pytest.param(ARTICLES[it], id=it) for it in ("generated procedures", "statements", "MariaDB")],
    indirect=True,
)


@_ALTERED
def test_a_schema_change_that_the_table_refuses_is_mended_and_delivered(shell: _Shell) -> None:
    file = str(shell.file)
    shell.at_subscriber("ALTER TABLE item ADD COLUMN remark int")
    shell.site.at_publisher("ALTER TABLE item RENAME COLUMN note TO remark", "INSERT INTO item VALUES (3, 'third')")
    stopped = shell.run("run", file)
    assert stopped.status == 1
    printed = _printed(stopped)
    assert "run" in printed, stopped.err
    assert "skip" not in printed, stopped.err
    assert shell.run("status", file).status == 2
    if "browse" in printed:
        assert shell.paste(printed["browse"]).status == 0
    assert shell.paste(printed["run"]).status == 1, "nothing is mended yet"
    shell.at_subscriber("ALTER TABLE item DROP COLUMN remark")
    done = shell.paste(printed["run"])
    assert done.status == 0, done.err
    assert (shell.differs(), shell.run("status", file).status) == (False, 0)


@_ALTERED
def test_a_file_that_is_not_as_it_is_set_up_names_setup(shell: _Shell) -> None:
    file = str(shell.file)
    document = yaml.safe_load(shell.file.read_text())
    document["articles"][0]["filter"] = "id < 100"
    shell.file.write_text(yaml.safe_dump(document))
    stopped = shell.run("run", file)
    assert stopped.status == 1
    printed = _printed(stopped)
    assert list(printed) == ["setup"], stopped.err
    assert shell.paste(printed["setup"]).status == 0
    assert shell.run("run", file).status == 0
    assert (shell.differs(), shell.run("status", file).status) == (False, 0)


@_ALTERED
def test_what_setup_made_and_is_gone_names_setup(shell: _Shell) -> None:
    file = str(shell.file)
    shell.at_subscriber("DROP TABLE item")
    shell.site.at_publisher("INSERT INTO item VALUES (3, 'third')")
    stopped = shell.run("run", file)
    assert stopped.status == 1
    printed = _printed(stopped)
    assert "setup" in printed, stopped.err
    assert shell.paste(printed["setup"]).status == 0
    assert shell.run("run", file).status == 0
    assert (shell.differs(), shell.run("status", file).status) == (False, 0)
