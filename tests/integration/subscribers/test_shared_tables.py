"""A Subscriber's table that two publications deliver to: neither deletes the other's rows, or they may not share it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from conftest import DatabasesFactory
from support.databases import Databases
from support.site import Rows, Site
from support.spark_here import SparkHere
from support.subscribers import STATEMENTS, sqlite_execute
from support.whole_run import good_run, whole_run
from tranrepl.admin.check import check
from tranrepl.connections import Connection
from tranrepl.errors import ConfigurationError
from tranrepl.jobs.requests import Repair, SnapshotRequest
from tranrepl.model.names import TableName
from tranrepl.snapshot.reinitialization import mark_for_reinitialization

_APART = {"pre_creation_cmd": "delete"}
_BY_KEYS = {"truncate": "ignore"}


class _Sites:
    """Publications `one` and `two` of tables of these names, whose rows have them as their `part`."""

    def __init__(self, ends: Databases, folder: Path) -> None:
        self._ends, self._folder = ends, folder

    def site(self, name: str, article: dict[str, Any], sync_type: str = "automatic", **file: Any) -> Site:
        article = {"source": f"public.{name}", "destination": "public.shared", **STATEMENTS, **article}
        subscription = {"name": "reporting", "connection": "subscriber", "sync_type": sync_type}
        settings = {"publication": name, "replicate_ddl": True, **file}
        return Site(self._ends, self._folder / name, [article], SparkHere(), [subscription], **settings)

    def filtered(self, name: str, **article: Any) -> Site:
        return self.site(name, {"filter": f"part = '{name}'", **_APART, **article})


@pytest.fixture
def sites(databases: DatabasesFactory, tmp_path: Path) -> _Sites:
    made = _Sites(databases(), tmp_path)
    site = made.site("one", {})
    for at, name in ((1, "one"), (2, "two")):
        site.at_publisher(
            f"CREATE TABLE {name} (id int PRIMARY KEY, part text)", f"INSERT INTO {name} VALUES ({at}, '{name}')"
        )
    return made


def _rows(site: Site) -> Rows:
    return site.at_subscriber("SELECT id, part FROM shared ORDER BY id")


def _reinitialize(site: Site) -> None:
    request = SnapshotRequest(publication=site.publication, subscription="reporting")
    mark_for_reinitialization(request, site.topology)


def test_truncates_snapshots_and_repairs_leave_rows_of_others(sites: _Sites) -> None:
    one, two = sites.filtered("one"), sites.filtered("two")
    for site in (one, two):
        site.set_up()
        good_run(site)
    one.set_up()
    assert _rows(one) == [(1, "one"), (2, "two")]
    one.at_publisher("TRUNCATE one", "INSERT INTO one VALUES (3, 'one')")
    good_run(one)
    assert _rows(one) == [(2, "two"), (3, "one")]
    two.at_publisher("INSERT INTO two VALUES (4, 'two')")
    good_run(two)
    one.at_subscriber("INSERT INTO shared VALUES (5, 'one')")
    _reinitialize(one)
    good_run(one)
    assert _rows(one) == [(2, "two"), (3, "one"), (4, "two")]
    validated = one.validate(repair=Repair.APPLY)
    assert validated.validation is not None
    (article,) = validated.validation.articles
    assert article.not_repaired == "publication two delivers rows of public.two to the same table"
    assert _rows(one) == [(2, "two"), (3, "one"), (4, "two")]


@pytest.mark.parametrize(
    ("first", "second", "sync_type", "said"),
    [
        ({}, {}, "automatic", "a TRUNCATE of article public.two, or a partition that goes, deletes both's"),
        ({}, {"filter": "part = 'two'"}, "automatic", "a TRUNCATE of article public.one of publication one at "),
        ({}, _BY_KEYS, "replication_support_only", "a TRUNCATE of article public.one of publication one at "),
        (_BY_KEYS, _BY_KEYS | _APART, "automatic", "pre_creation_cmd: delete` and no row filter deletes both's"),
        ({"filter": "id > 0"}, {"filter": "id > 0"}, "automatic", "both have the row filter id > 0"),
        (
            {"filter": "part = 'one'"},
            {"filter": "part = 'two'", "pre_creation_cmd": "truncate"},
            "automatic",
            "a snapshot with `pre_creation_cmd: truncate` and a row filter deletes both's",
        ),
    ],
    ids=str,
)
def test_what_would_delete_rows_of_others_is_refused(
    sites: _Sites, first: dict[str, Any], second: dict[str, Any], sync_type: str, said: str
) -> None:
    one, two = sites.site("one", first), sites.site("two", {**_APART, **second}, sync_type)
    one.set_up()
    good_run(one)
    with pytest.raises(ConfigurationError, match=re.escape(said)) as refused:
        two.set_up()
    assert _rows(one) == [(1, "one")]
    # Where the other publication is no more.
    (release,) = re.findall(r"UPDATE mssubscription_articles .*;", refused.value.report.remedy or "")
    one.at_subscriber(release)
    two.set_up()
    if "a snapshot with" not in said and "no row filter" not in said:
        # It is not so: its next setup says that.
        with pytest.raises(ConfigurationError, match=r"has rows of article public\.one and of article public\.two"):
            one.set_up()


def test_tables_of_the_same_publication_are_one_error(sites: _Sites) -> None:
    one, again = sites.site("one", {}), sites.site("one", _APART, publication="again")
    for site in (one, again):
        article = site.publication.articles[0]
        another = article.model_copy(update={"source": TableName("public", "two"), "destination": None})
        site.publication = site.publication.model_copy(update={"articles": [article, another]})
    one.set_up()
    (shared,) = (it.report for it in check(again.topology).problems)
    assert "2 tables have rows of this publication and of publication one at " in shared.message
    assert "public.shared, public.two: a TRUNCATE of " in shared.message
    assert "deletes both's; a snapshot with `pre_creation_cmd: delete` and no row filter deletes" in shared.message
    (release,) = re.findall(r"UPDATE .*;", shared.remedy or "")
    one.at_subscriber(release)
    assert check(again.topology).problems == []


def test_rows_that_are_found_by_their_keys_alone_may_share_a_table(sites: _Sites) -> None:
    one, two = (sites.site(it, _BY_KEYS, "replication_support_only") for it in ("one", "two"))
    for site in (one, two):
        site.set_up()
    one.at_publisher("INSERT INTO one VALUES (3, 'one')", "INSERT INTO two VALUES (4, 'two')", "TRUNCATE one")
    for site in (one, two):
        good_run(site)
    assert _rows(one) == [(3, "one"), (4, "two")]


def test_a_snapshot_of_before_the_other_publication_is_refused(sites: _Sites) -> None:
    one, two = sites.filtered("one", pre_creation_cmd="truncate"), sites.filtered("two")
    for site in (one, two):
        site.set_up()
        good_run(site)
    _reinitialize(one)
    error = whole_run(one)["reporting snapshot"].error
    assert error is not None
    assert "a snapshot with `pre_creation_cmd: truncate` and a row filter deletes both's" in error.message
    assert _rows(one) == [(1, "one"), (2, "two")]


def test_a_table_that_an_article_has_left_is_free(sites: _Sites) -> None:
    one = sites.site("one", {})
    one.set_up()
    good_run(one)
    left = one.publication.model_dump(mode="json", exclude_unset=True)
    left["articles"] = [{"source": "public.one", "destination": "public.another", **STATEMENTS}]
    one.publication = one.publication.model_validate(left)
    one.set_up()
    good_run(one)
    sites.site("two", _APART).set_up()


def test_a_partition_that_goes_leaves_rows_of_others(sites: _Sites, tmp_path: Path) -> None:
    names = ("reporting", "sqlite")
    site = sites.filtered("parted")
    subscriptions = [{"name": it, "connection": it, "sync_type": "automatic"} for it in names]
    edited = site.publication.model_dump(mode="json", exclude_unset=True) | {"subscriptions": subscriptions}
    site.publication = site.publication.model_validate(edited)
    file = str(tmp_path / "file.db")
    site.connections |= {
        "reporting": site.connections["subscriber"],
        "sqlite": Connection("sqlite", "sqlite", database=file),
    }
    site.at_publisher(
        "CREATE TABLE parted (id int PRIMARY KEY, part text) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF parted FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE high PARTITION OF parted FOR VALUES FROM (10) TO (20)",
        "INSERT INTO parted VALUES (1, 'parted'), (11, 'parted')",
    )
    site.set_up()
    good_run(site)
    sqlite = sqlite_execute(file)
    for execute in (site.at_subscriber, sqlite):
        execute("INSERT INTO shared VALUES (2, 'other')")
    site.at_publisher("DROP TABLE low", "INSERT INTO parted VALUES (12, 'parted')")
    good_run(site)
    rows = [(2, "other"), (11, "parted"), (12, "parted")]
    assert _rows(site) == rows
    assert sqlite("SELECT id, part FROM shared ORDER BY id") == rows


def test_publications_share_a_table_of_mariadb_by_the_same_rule(
    sites: _Sites, mariadb: Any, mariadb_database: str
) -> None:
    made = [sites.filtered(it, destination=f"{mariadb_database}.shared") for it in ("one", "two")]
    for site in made:
        site.connections["subscriber"] = mariadb.connection(mariadb_database, "subscriber")
        site.set_up()
        good_run(site)
    made[0].at_publisher("TRUNCATE one")
    good_run(made[0])
    _reinitialize(made[0])
    good_run(made[0])
    assert list(mariadb.execute("SELECT id, part FROM shared", database=mariadb_database)) == [(2, "two")]
    third = sites.site("one", {"destination": f"{mariadb_database}.shared", **_APART}, publication="three")
    third.connections["subscriber"] = made[0].connections["subscriber"]
    with pytest.raises(ConfigurationError, match=r"a TRUNCATE of article public\.one, or a partition"):
        third.set_up()
