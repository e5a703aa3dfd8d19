"""Row filters: what the Publisher's own catalogue calls immutable is allowed; a condition may do without a column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from conftest import DatabasesFactory
from support.databases import Databases
from support.embedded_postgres import PostgresServer
from support.in_process import read_commands, replicate
from support.site import Site, execute
from support.spark_here import SparkHere
from tranrepl.admin.check import check, check_publisher
from tranrepl.errors import ReplicationError

_EVENT = """
CREATE TABLE event (id int PRIMARY KEY, on_day date, at timestamp, seen timestamptz, "who" text, kind mood,
    price numeric(9, 2), late day_of_event, days date[], details jsonb, span daterange, code char(5))
"""
_TYPES = (
    "CREATE TYPE mood AS ENUM ('today', 'glad')",
    "CREATE DOMAIN day_of_event AS date",
    "CREATE FUNCTION is_new(timestamptz) RETURNS boolean LANGUAGE sql STABLE RETURN $1 > now()",
    "CREATE FUNCTION is_even(int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1 % 2 = 0; END'",
    "CREATE FUNCTION alike(a text, b text) RETURNS boolean LANGUAGE plpgsql STABLE AS 'BEGIN RETURN a = b; END'",
    "CREATE OPERATOR ~~~ (FUNCTION = alike, LEFTARG = text, RIGHTARG = text)",
)

_VOLATILE = {
    "age(seen) > interval '1 day'": "age(seen)",
    "at < localtimestamp": "LOCALTIMESTAMP",
    "at::time < localtime": "LOCALTIME",
    "seen < statement_timestamp()": "statement_timestamp()",
    "seen > clock_timestamp() - interval '1 h'": "clock_timestamp()",
    "seen < now()": "CURRENT_TIMESTAMP",
    "on_day = current_date": "CURRENT_DATE",
    "random() < 0.5": "RANDOM()",
    "who = current_setting('application_name')": "current_setting('application_name')",
    "who = current_user": "CURRENT_USER",
    "who = session_user": "SESSION_USER",
    "who = current_schema": "CURRENT_SCHEMA",
    "id = pg_backend_pid()": "pg_backend_pid()",
    "at::timestamptz > '2024-01-01'": "CAST(at AS TIMESTAMPTZ)",
    "seen::date > '2024-01-01'": "CAST(seen AS DATE)",
    "seen > at": "seen > at",
    "on_day > 'today'::text::date": "CAST(CAST('today' AS TEXT) AS DATE)",
    "on_day > CAST(who AS date)": "CAST(who AS DATE)",
    "to_char(on_day, 'YYYY') = '2024'": "TO_CHAR(on_day, 'YYYY')",
    "extract(year FROM seen) > 2020": "EXTRACT(YEAR FROM seen)",
    "kind::text = 'glad'": "CAST(kind AS TEXT)",
    "NOT public.is_new(seen)": "public.is_new(seen)",
    "who OPERATOR(public.~~~) 'a'": "who OPERATOR(public.~~~) 'a'",
    "id > 1 AND (price > 2 OR (CASE WHEN id = 3 THEN age(at) END) IS NULL)": "age(at)",
}
_LITERALS = {
    "on_day > 'yesterday'": "'yesterday'",
    "seen > 'Yesterday 12:00'": "'Yesterday 12:00'",
    "at BETWEEN '2024-01-01' AND ' NOW '": "' NOW '",
    "on_day = date 'tomorrow'": "'tomorrow'",
    "late < 'today'": "'today'",
    "who = 'today' AND on_day = 'today'": "'today'",
    "seen = ANY ('{now,2024-01-01}'::timestamptz[])": "'{now,2024-01-01}'",
    "on_day = ANY (ARRAY['2024-01-01', 'now']::date[])": "'now'",
    "days @> '{today}'": "'{today}'",
    "span && '[2024-01-01,today)'": "'[2024-01-01,today)'",
    "at::time < 'now'": "'now'",
    "on_day > $$today$$": "$$today$$",
    "on_day > E'\\x74oday'": "E'\\x74oday'",
}
_ALLOWED = (
    "who = 'today'",
    "who IN ('now', 'yesterday') OR who LIKE '%tomorrow'",
    "kind = 'today'",
    "code = 'today'",
    "details @> '{\"day\": \"today\"}' AND details ->> 'x' = 'now'",
    "who = ANY ('{today,now}')",
    "seen > '2024-01-01' AND at < 'infinity' AND on_day > 'epoch'",
    "on_day > '2024-01-01' AND at > on_day",
    "extract(year FROM on_day) > 2020",
    "public.is_even(id)",
    "lower(who) || 'x' <> 'abcx' AND price::text ~ '^1'",
    'event.id > 1 AND "event"."who" IS NOT NULL',
    "(id, who) < (10, 'a')",
    "false",
    "true",
    "1 = 1",
    "NULL",
    "NOT false AND 'a' < 'b'",
)


@pytest.fixture
def ends(databases: DatabasesFactory) -> Databases:
    made = databases()
    execute(made.publisher, *_TYPES, _EVENT)
    return made


def _problems(site: Site) -> list[ReplicationError]:
    """Return what `check` says of the Publisher."""
    return check_publisher(site.topology).problems


def _one_article_each(ends: Databases, tmp_path: Path, conditions: Iterable[str]) -> Site:
    """Return a site in which each condition filters a table of its own."""
    articles = [{"source": f"case{n}.event", "filter": it} for n, it in enumerate(conditions)]
    for n in range(len(articles)):
        execute(ends.publisher, f"CREATE SCHEMA case{n}", f"CREATE TABLE case{n}.event (LIKE event INCLUDING ALL)")
    return Site(ends, tmp_path / "store", articles)


def _said(site: Site) -> dict[str | None, list[str]]:
    """Return what `check` says of each filter."""
    problems = _problems(site)
    said: dict[str | None, list[str]] = {}
    for article in site.publication.articles:
        start = f"article {article.source}: filter: "
        said[article.filter] = [it.message.removeprefix(start) for it in problems if it.message.startswith(start)]
    assert sum(map(len, said.values())) == len(problems), problems
    assert all(it.report.remedy for it in problems)
    return said


def _catalogue(site: Site) -> list[object]:
    return list(site.at_publisher("SELECT count(*) FROM pg_class", "SELECT count(*), max(oid) FROM pg_namespace"))


def test_what_may_change_by_itself_is_refused_and_named(ends: Databases, tmp_path: Path) -> None:
    site = _one_article_each(ends, tmp_path, _VOLATILE)
    before = _catalogue(site)
    assert _said(site) == {
        condition: [f"{part} is not immutable: its result may change with time, or with a setting"]
        for condition, part in _VOLATILE.items()
    }
    assert _catalogue(site) == before


def test_a_literal_that_is_another_time_each_day_is_refused_and_named(ends: Databases, tmp_path: Path) -> None:
    assert _said(_one_article_each(ends, tmp_path, _LITERALS)) == {
        condition: [f"{literal} depends on when it is read"] for condition, literal in _LITERALS.items()
    }


def test_what_never_changes_by_itself_is_allowed(ends: Databases, tmp_path: Path) -> None:
    assert _said(_one_article_each(ends, tmp_path, _ALLOWED)) == {it: [] for it in _ALLOWED}


def test_another_version_of_postgres_judges_alike(
    debian_postgres: PostgresServer, databases: DatabasesFactory, tmp_path: Path
) -> None:
    made = databases(publisher=debian_postgres)
    execute(made.publisher, *_TYPES, _EVENT)
    said = _said(_one_article_each(made, tmp_path, [*_VOLATILE, *_LITERALS, *_ALLOWED]))
    assert [it for it, problems in said.items() if not problems] == list(_ALLOWED)


@pytest.fixture
def role(ends: Databases) -> Iterator[str]:
    """Yield a role that may read the table, and nothing else."""
    name = f"reader_{uuid4().hex[:8]}"
    database = ends.publisher.database
    execute(
        ends.publisher,
        f"CREATE ROLE {name} LOGIN REPLICATION PASSWORD 'x'",
        f"REVOKE TEMPORARY ON DATABASE {database} FROM PUBLIC",
        f"GRANT SELECT (id, on_day) ON event TO {name}",
    )
    yield name
    execute(ends.publisher, f"DROP OWNED BY {name}", f"DROP ROLE {name}")


def test_without_the_right_to_temporary_tables_the_right_is_named(ends: Databases, role: str, tmp_path: Path) -> None:
    limited = replace(ends, publisher=replace(ends.publisher, login=role, password="x"))  # noqa: S106 — of nobody
    article = {"source": "public.event", "columns": ["id", "on_day"], "filter": "on_day > '2024-01-01'"}
    site = Site(limited, tmp_path / "store", [article])
    (problem,) = _problems(site)
    assert problem.message.startswith("article public.event: filter: ")
    assert problem.report.remedy == f'GRANT TEMPORARY ON DATABASE "{ends.publisher.database}" TO "{role}"'
    execute(ends.publisher, str(problem.report.remedy), f"ALTER ROLE {role} SET default_transaction_read_only = on")
    assert _problems(site) == []
    unfiltered = Site(limited, tmp_path / "store", [{"source": "public.event", "columns": ["id"]}])
    execute(ends.publisher, f'REVOKE TEMPORARY ON DATABASE "{ends.publisher.database}" FROM "{role}"')
    assert _problems(unfiltered) == []


# Without a column

_WORK = (
    "INSERT INTO event (id, who) SELECT n, 'who ' || n FROM generate_series(1, 9) n",
    "UPDATE event SET who = NULL WHERE id < 5",
    "UPDATE event SET id = id + 100 WHERE id IN (2, 7)",
    "DELETE FROM event WHERE id = 3",
)
_CONSTANTS = {"false": 0, "NULL": 0, "1 = 1": 8, "true": 8}
_IDENTITIES: tuple[Mapping[str, str], ...] = ({}, {"replica_identity": "default"})


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("identity", _IDENTITIES, ids=["full", "default"])
@pytest.mark.parametrize("condition", _CONSTANTS)
def test_a_filter_without_a_column_lets_all_rows_through_or_none(
    condition: str, identity: Mapping[str, str], databases: DatabasesFactory, tmp_path: Path
) -> None:
    ends = databases()
    # What is there before comes by the snapshot.
    articles = [{"source": "public.event", "filter": condition, **identity}]
    subscriptions = [{"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}]
    site = Site(ends, tmp_path / "store", articles, SparkHere(), subscriptions)
    site.at_publisher("CREATE TABLE event (id int PRIMARY KEY, who text)", "INSERT INTO event VALUES (500, 'before')")
    site.set_up()
    site.take_snapshot().raise_error()
    site.at_publisher(*_WORK)
    read = replicate(site)
    assert (len(read.commands) > 0) == (_CONSTANTS[condition] > 0)
    published = site.at_publisher(f"SELECT * FROM event WHERE {condition} ORDER BY 1")
    assert len(published) == (_CONSTANTS[condition] and _CONSTANTS[condition] + 1)
    assert site.at_subscriber("SELECT * FROM event ORDER BY 1") == published
    assert site.validate().error is None
    if condition == "false":
        site.at_subscriber("INSERT INTO event VALUES (7, 'own')")
        assert site.validate().error is not None
        # TRUNCATE takes the article's rows, of which there are none.
        site.at_publisher("TRUNCATE event")
        replicate(site)
        assert site.at_subscriber("SELECT * FROM event") == [(7, "own")]
    else:
        site.at_publisher("TRUNCATE event")
        replicate(site)
        assert site.at_subscriber("SELECT * FROM event") == []


def test_texts_are_ordered_as_their_column_says(
    databases: DatabasesFactory, debian_postgres: PostgresServer, tmp_path: Path
) -> None:
    # The log reader's answers are those of the snapshot: capitals first, or among the small letters.
    articles = [
        {"source": "public.here", "filter": "who < 'b'"},
        {"source": "public.there", "filter": "who < 'b' AND who <> 'x' AND days[1] < 'b'"},
    ]
    # The embedded one has no ICU.
    site = Site(databases(publisher=debian_postgres), tmp_path / "store", articles, SparkHere())
    for name, collation in (("here", '"C"'), ("there", '"en-x-icu"')):
        site.at_publisher(
            f"CREATE TABLE {name} (id int PRIMARY KEY, who text COLLATE {collation}, days text[] COLLATE {collation})"
        )
    site.set_up()
    for name in ("here", "there"):
        site.at_publisher(
            f"INSERT INTO {name} VALUES (1, 'A', '{{A}}'), (2, 'B', '{{B}}'), (3, 'a', '{{a}}'), (4, 'c', '{{c}}')"
        )
    replicate(site)
    assert site.at_subscriber("SELECT id FROM here ORDER BY 1") == [(1,), (2,), (3,)]
    assert site.at_subscriber("SELECT id FROM there ORDER BY 1") == [(1,), (3,)]
    assert site.validate().error is None


def test_a_registered_filter_that_check_refuses_now_goes_on_as_it_is(
    ends: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    condition = "seen::date > '2000-01-01' AND on_day < date '2024-01-01' + id"
    article = {"source": "public.event", "columns": ["id", "seen", "on_day"], "filter": condition}
    site = Site(ends, tmp_path / "store", [article])
    with monkeypatch.context() as before:
        before.setattr("tranrepl.publisher.postgres.article_check.filter_problems", lambda *_: iter(()))
        site.set_up()
    assert len(check(site.topology).problems) == 1
    site.at_publisher(
        "INSERT INTO event (id, seen, on_day) VALUES (1, '2020-01-01', '2020-01-01'), (2, '1990-01-01', '2020-01-01')"
    )
    replicate(site)
    assert site.at_subscriber("SELECT id FROM event") == [(1,)]
    assert len(read_commands(site).commands) == 0
