"""A table that is dropped and made again is replicated again by the run that finds it, with all its rows, where its
login may do so. Else, and where it is not published any more, each run ends with an error until setup has run; the
other articles continue."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from conftest import DatabasesFactory
from support.continuous_reader import follows, read_continuously, wait_for
from support.equality import differing_rows
from support.least_rights import with_login
from support.observed import distribution_rows
from support.site import Site
from support.spark_here import SparkHere
from support.whole_run import good_run, whole_run
from tranrepl.admin.check import check
from tranrepl.admin.run import LOG_READER, read_log
from tranrepl.admin.status import status
from tranrepl.errors import ARTICLE_DOES_NOT_EXIST, ConfigurationError, ErrorKind, ErrorReport
from tranrepl.jobs.requests import Repair
from tranrepl.jobs.shutdown import heeding_shutdown

_MADE = "CREATE TABLE a (id int PRIMARY KEY, v text)"
_FILLED = "INSERT INTO a VALUES (1, 'new'), (7, 'seven')"
_MISSED = ("UPDATE a SET v = 'missed' WHERE id = 1", "DELETE FROM a WHERE id = 2", "INSERT INTO a VALUES (7, 'seven')")


def _altered(publication: str) -> str:
    statement = f"SELECT format('ALTER PUBLICATION %I {publication}', pubname) FROM pg_publication"
    return f"DO $$ BEGIN EXECUTE ({statement}); END $$"


_OTHER_COLUMNS = "CREATE TABLE a (v varchar(20), id int PRIMARY KEY)"
_OTHER_ROWS = "INSERT INTO a VALUES ('new', 1), ('seven', 7)"
_MADE_AGAIN = {
    "in one transaction": (f"BEGIN; DROP TABLE a; {_MADE}; {_FILLED}; COMMIT",),
    "without a transaction": ("DROP TABLE a", _MADE, _FILLED),
    "with other columns": ("DROP TABLE a", _OTHER_COLUMNS, _OTHER_ROWS),
}
_LEFT_TO_SETUP = {
    "renamed before": ("ALTER TABLE a RENAME TO old", "UPDATE old SET v = 'x'", "DROP TABLE old", _MADE, _FILLED),
    "taken out": (_altered("DROP TABLE a"), *_MISSED),
    "taken out and put back": (_altered("DROP TABLE a"), *_MISSED, _altered("ADD TABLE a")),
}


def _of(table: str, statements: tuple[str, ...]) -> list[str]:
    """Return what is done to `a`, done to another table."""
    return [re.sub(r"\ba\b", table, it) for it in statements]


def _site(
    databases: DatabasesFactory, tmp_path: Path, table: str = _MADE, more: tuple[str, ...] = (), **settings: Any
) -> Site:
    """Return a site whose Subscriber has the rows of both articles, and of `more` that are as `a`. `settings`: of
    article, subscription and file."""
    of_article = {"pre_creation_cmd": "delete", **settings.pop("article", {})}
    subscription = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}
    subscription |= settings.pop("subscription", {})
    articles = [{"source": f"public.{it}", **of_article} for it in ("a", *more)]
    articles.append({"source": "public.b", "pre_creation_cmd": "delete"})
    file = {"replicate_ddl": True, **settings}
    site = Site(databases(), tmp_path / "store", articles, SparkHere(), [subscription], **file)
    site.at_publisher(table, "CREATE TABLE b (id int PRIMARY KEY, v text)")
    rows = "INSERT INTO a VALUES (1, 'one'), (2, 'two')"
    for it in more:
        site.at_publisher(*_of(it, (table,)))
    site.set_up()
    site.at_publisher("INSERT INTO b VALUES (1, 'one')", *(it for name in ("a", *more) for it in _of(name, (rows,))))
    good_run(site)
    assert differing_rows(site) == {}
    return site


def _run_in_vain(site: Site, row: int) -> ErrorReport:
    """Run twice, the second time with nothing to read, while `b` changes; return the log reader's error."""
    site.at_publisher(f"INSERT INTO b VALUES ({row}, 'meanwhile')")
    for _ in range(2):
        results = whole_run(site)
        error = results.pop(LOG_READER).error or ErrorReport(kind=ErrorKind.INTERNAL, message="none")
        assert [it.error for it in results.values()] == [None]
    assert (error.number, error.article) == (ARTICLE_DOES_NOT_EXIST, "public.a")
    assert site.at_subscriber(f"SELECT v FROM b WHERE id = {row}") == [("meanwhile",)]
    assert "the log reader's last run failed" in status(site.topology).wrong
    assert site.validate(articles=("public.b",)).error is None
    return error


def _is_replicated_again(site: Site, *tables: str) -> None:
    assert differing_rows(site) == {}
    updates = (f"UPDATE {it} SET v = 'later' WHERE id = 1" for it in tables or ("a",))
    site.at_publisher(*updates, "INSERT INTO b VALUES (30, 'later')")
    good_run(site)
    assert differing_rows(site) == {}
    assert check(site.topology).problems == []
    assert status(site.topology).wrong == []


def test_tables_that_are_made_again_are_copied_by_the_next_run(databases: DatabasesFactory, tmp_path: Path) -> None:
    tables = dict(zip(("a", "c", "d"), _MADE_AGAIN.values(), strict=True))
    site = _site(databases, tmp_path, more=("c", "d"), article={"pre_creation_cmd": "drop"})
    for table, how in tables.items():
        site.at_publisher(*_of(table, how))
    said = good_run(site)[LOG_READER].notices
    for table in tables:
        assert any(f"public.{table} is copied to reporting again" in it for it in said), table
    _is_replicated_again(site, *tables)


def test_a_continuous_log_reader_goes_on_with_a_table_that_is_made_again(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site(databases, tmp_path)
    with heeding_shutdown() as asked, ThreadPoolExecutor(1) as executor:
        read = partial(read_continuously, site, 3600.0)
        job = executor.submit(read_log, site.publication, lambda: site.topology, read)
        wait_for(lambda: follows(site) or job.done())
        site.at_publisher(*_MADE_AGAIN["in one transaction"])
        waits = "SELECT count(*) FROM msarticle_subscriptions WHERE article = 'public.a' AND status = 'subscribed'"
        wait_for(lambda: (distribution_rows(site, waits) == [(1,)] and follows(site)) or job.done())
        site.at_publisher("INSERT INTO b VALUES (30, 'later')")
        wait_for(lambda: site.run_distribution("reporting").commands > 0 or job.done())
        assert not job.done()
        asked.ask()
        result = job.result(60)
    assert result.error is None
    assert any("public.a" in it for it in result.notices)
    good_run(site)
    assert differing_rows(site) == {}


def test_a_dropped_table_is_an_error_until_it_is_made_again(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases, tmp_path)
    site.at_publisher("DROP TABLE a")
    assert "make the table again" in str(_run_in_vain(site, 10).remedy)
    with pytest.raises(ConfigurationError, match="no such table"):
        site.set_up()
    site.at_publisher(_MADE, _FILLED)
    good_run(site)
    _is_replicated_again(site)


def test_a_table_with_new_columns_waits_until_the_subscriber_has_them(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site(databases, tmp_path)
    site.at_publisher("DROP TABLE a", f"{_MADE}; ALTER TABLE a ADD COLUMN more int DEFAULT 3", _FILLED)
    _run_in_vain(site, 20)
    (lacking,) = check(site.topology).blocking
    assert lacking.report.remedy is not None
    site.at_subscriber(lacking.report.remedy.partition(";")[0])
    good_run(site)
    _is_replicated_again(site)


@pytest.mark.parametrize("how", _LEFT_TO_SETUP)
def test_a_table_that_was_renamed_or_taken_out_is_an_error_until_setup_copies_it(
    how: str, databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site(databases, tmp_path)
    site.at_publisher(*_LEFT_TO_SETUP[how])
    said = _run_in_vain(site, 20)
    assert str(said.remedy).startswith("`tranrepl setup FILE`")
    assert [it.message for it in check(site.topology).problems] == [said.message]
    assert any("public.a is copied to reporting again" in it for it in site.set_up())
    good_run(site)
    _is_replicated_again(site)


def test_a_login_that_may_not_publish_the_table_leaves_it_to_setup(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases, tmp_path)
    site.at_publisher(
        "DROP ROLE IF EXISTS reads_alone",
        "CREATE ROLE reads_alone LOGIN REPLICATION PASSWORD 'reads'",
        "GRANT SELECT ON b, tranrepl.message_secret TO reads_alone",
        "BEGIN",
        "DROP TABLE a",
        _MADE,
        "GRANT SELECT ON a TO reads_alone",
        "COMMIT",
        _FILLED,
    )
    owner = site.connections["publisher"]
    site.connections["publisher"] = with_login(owner, "reads_alone", "reads")
    assert str(_run_in_vain(site, 20).remedy).startswith("`tranrepl setup FILE`")
    site.connections["publisher"] = owner
    good_run(site)
    _is_replicated_again(site)


def test_a_file_that_was_changed_meanwhile_is_left_to_setup(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases, tmp_path)
    site.at_publisher("DROP TABLE a", _MADE, _FILLED)
    edited = site.publication.model_dump(mode="json", exclude_unset=True)
    edited["articles"][0] |= {"update_policy": "always_pairs"}
    site.read_log()
    site.publication = site.publication.model_validate(edited)
    assert str(_run_in_vain(site, 20).remedy).startswith("`tranrepl setup FILE`")
    site.set_up()
    good_run(site)
    _is_replicated_again(site)


def test_a_subscription_that_the_file_names_no_more_is_left_to_setup(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site(databases, tmp_path)
    site.at_publisher("DROP TABLE a", _MADE, _FILLED)
    whole = site.publication
    site.publication = whole.model_copy(update={"subscriptions": []})
    error = whole_run(site)[LOG_READER].error
    assert error is not None
    assert error.number == ARTICLE_DOES_NOT_EXIST
    site.publication = whole
    good_run(site)
    _is_replicated_again(site)


def test_a_partitioned_table_that_is_made_again_is_copied_by_the_next_run(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    parts = ("CREATE TABLE a_1 PARTITION OF a FOR VALUES FROM (0) TO (5)", "CREATE TABLE a_2 PARTITION OF a DEFAULT")
    made = "; ".join((f"{_MADE} PARTITION BY RANGE (id)", *parts))
    site = _site(databases, tmp_path, made)
    site.at_publisher(f"BEGIN; DROP TABLE a; {made}; {_FILLED}; COMMIT")
    good_run(site)
    assert differing_rows(site) == {}


@pytest.mark.parametrize("narrowed", ["DROP TABLE a", "SET (publish = ''insert'')", "SET TABLE a WHERE (id > 5), b"])
def test_what_was_not_published_is_copied_by_setup_where_nothing_tells(
    narrowed: str, databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site(databases, tmp_path, replicate_ddl=False)
    site.at_publisher(_altered(narrowed), *_MISSED)
    with pytest.raises(ConfigurationError, match="its changes are not all published any more"):
        good_run(site)
    site.set_up()
    good_run(site)
    assert differing_rows(site) == {}


@pytest.mark.parametrize(
    "settings",
    [{"article": {"on_unknown_rows": "stop"}}, {"subscription": {"sync_type": "replication_support_only"}}],
    ids=str,
)
def test_its_rows_are_compared_where_they_are_not_to_be_copied(
    settings: dict[str, Any], databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site(databases, tmp_path, **settings)
    site.at_publisher(f"BEGIN; DROP TABLE a; {_MADE}; {_FILLED}; COMMIT")
    _run_in_vain(site, 20)
    assert any("public.a of subscription reporting is stopped until its rows" in it for it in site.set_up())
    site.at_publisher("INSERT INTO a VALUES (8, 'eight')")
    stopped = whole_run(site)["reporting"].error
    assert stopped is not None
    assert "its table was dropped, or taken out of the publication, and is published again" in stopped.message
    site.validate(repair=Repair.APPLY).raise_error()
    good_run(site)
    assert differing_rows(site) == {}


def test_another_table_of_an_old_name_is_an_error_until_the_file_says_which(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site(databases, tmp_path)
    site.at_publisher(
        f"BEGIN; ALTER TABLE a RENAME TO old; {_MADE}; {_FILLED}; COMMIT", "INSERT INTO old VALUES (9, 'nine')"
    )
    error = _run_in_vain(site, 20)
    assert "write `source: public.old` and `destination: public.a` in the file" in str(error.remedy)
    assert (9, "nine") in site.at_subscriber("SELECT * FROM a")
    assert [it.message for it in check(site.topology).problems] == [error.message]
    before = site.publication
    edited = before.model_dump(mode="json", exclude_unset=True)
    edited["articles"][0] |= {"source": "public.old", "destination": "public.a"}
    site.publication = before.model_validate(edited)
    site.set_up()
    good_run(site)
    assert differing_rows(site) == {}
    # And on to the other table.
    site.publication = before
    site.set_up()
    good_run(site)
    assert differing_rows(site) == {}
    assert site.at_subscriber("SELECT * FROM a ORDER BY id") == [(1, "new"), (7, "seven")]


def test_the_name_of_a_dropped_table_that_another_article_took(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases, tmp_path)
    site.at_publisher("DROP TABLE a", "ALTER TABLE b RENAME TO a", "INSERT INTO a VALUES (5, 'five')")
    error = whole_run(site)[LOG_READER].error
    assert error is not None
    assert error.remedy == (
        "take the article out of the file, and write `source: public.a` and `destination: public.b` for public.b; then "
        "`tranrepl setup FILE`"
    )
    edited = site.publication.model_dump(mode="json", exclude_unset=True)
    edited["articles"] = [{"source": "public.a", "destination": "public.b", "pre_creation_cmd": "delete"}]
    site.publication = site.publication.model_validate(edited)
    site.set_up()
    good_run(site)
    assert differing_rows(site) == {}


def test_an_alteration_that_is_not_read_is_followed_after_a_setup_where_a_table_is_missed(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site(databases, tmp_path)
    site.at_publisher("DROP TABLE a", _MADE, _FILLED)
    assert site.read_log().error is not None
    site.at_publisher("ALTER TABLE b ADD COLUMN more int DEFAULT 4")
    site.set_up()
    good_run(site)
    assert differing_rows(site) == {}
    assert site.at_subscriber("SELECT more FROM b WHERE id = 1") == [(4,)]


def test_commands_to_a_table_that_was_renamed_and_dropped_are_not_for_the_one_made_again(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site(databases, tmp_path)
    site.at_publisher("UPDATE a SET v = 'x' WHERE id = 2", *_LEFT_TO_SETUP["renamed before"])
    site.read_log()
    site.set_up()
    site.take_snapshot().raise_error()
    good_run(site)
    _is_replicated_again(site)
