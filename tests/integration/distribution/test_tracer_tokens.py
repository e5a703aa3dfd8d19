"""Tracer tokens: registered and delivered once each, whatever becomes of the jobs, and never in a change's way."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from psycopg import OperationalError

from conftest import DatabaseFactory, DatabasesFactory
from support.announced import signed
from support.least_rights import with_login
from support.observed import distribution_rows, watermark
from support.shell import publication_file, typed
from support.site import Site, execute
from support.spark_here import SparkHere
from tranrepl.admin.browse import Selection, browse
from tranrepl.admin.cleanup import clean_up
from tranrepl.admin.trace import newest_tokens, post_token
from tranrepl.distribution import delivery
from tranrepl.errors import MissingRightError
from tranrepl.failpoint import Failpoint
from tranrepl.log_reader import draining
from tranrepl.model.tracer_token import TracerToken

_ROWS = "SELECT id FROM t ORDER BY id"
_ARRIVED = (
    "SELECT token, subscription FROM mstracer_tokens JOIN mstracer_history ON parent_tracer_id = tracer_id "
    "JOIN mssubscriptions USING (subscription_id) ORDER BY tracer_id, subscription_id"
)
_EMIT = "pg_logical_emit_message(boolean, text, text, boolean)"
"""As PostgreSQL 17 and later have it."""
_IN_ORDER = (
    "SELECT bool_and(publisher_commit <= distributor_commit AND distributor_commit <= subscriber_commit) "
    "FROM mstracer_tokens LEFT JOIN mstracer_history ON parent_tracer_id = tracer_id"
)


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    return _set_up(Site(databases(), tmp_path / "store", ["public.t"], SparkHere()))


def _set_up(site: Site) -> Site:
    site.at_publisher("CREATE TABLE t (id int PRIMARY KEY)")
    site.set_up()
    return site


def _insert(site: Site, row: int) -> None:
    site.at_publisher(f"INSERT INTO t VALUES ({row})")


def _arrived(site: Site) -> list[tuple[Any, ...]]:
    return distribution_rows(site, _ARRIVED)


def test_a_token_alone_in_the_log_is_registered_and_arrives(site: Site) -> None:
    token = post_token(site.topology)
    read = site.read_log()
    assert (read.error, read.commands, read.commands_by_article) == (None, 1, {})
    assert (newest_tokens(site.topology, 9)[0].token, _arrived(site)) == (token, [])
    delivered = site.deliver()
    assert (delivered.error, delivered.commands) == (None, 0)
    assert _arrived(site) == [(token, "reporting")]
    assert distribution_rows(site, _IN_ORDER) == [(True,)]
    assert distribution_rows(site, "SELECT xact_seqno FROM mstracer_tokens") == [(watermark(site),)]
    assert site.probe_batches("reporting") is not None


def test_tokens_among_changes_leave_both_ends_equal(site: Site) -> None:
    tokens = []
    for row in range(1, 6):
        _insert(site, row)
        tokens.append(post_token(site.topology))
    delivered = site.run()
    assert (delivered.transactions, delivered.commands, delivered.batches) == (5, 5, 1)
    assert site.at_subscriber(_ROWS) == [(it,) for it in range(1, 6)]
    assert _arrived(site) == [(it, "reporting") for it in tokens]


def test_a_token_inside_a_transaction_divides_nothing(site: Site) -> None:
    with site.topology.publisher("test") as publisher:
        message = TracerToken.new(publisher.name).message
    emitted = signed("tracer", f"'{message}'")
    rows = "INSERT INTO t SELECT generate_series({}, {})"
    site.at_publisher(f"BEGIN; {rows.format(1, 500)}; {emitted}; {rows.format(501, 1000)}; COMMIT")
    delivered = site.run()
    assert (delivered.transactions, delivered.commands, delivered.in_bulk) == (1, 1000, 1000)
    assert delivered.fallbacks == {}
    assert len(_arrived(site)) == 1


def test_each_subscription_gets_a_token_at_its_own_pace(
    databases: DatabasesFactory, database: DatabaseFactory, tmp_path: Path
) -> None:
    subscriptions = [{"name": it, "connection": it} for it in ("subscriber", "second")]
    site = Site(databases(), tmp_path / "store", ["public.t"], SparkHere(), subscriptions)
    site.connections["second"] = database("second")
    _set_up(site)
    token = post_token(site.topology)
    site.read_log().raise_error()
    site.deliver("second").raise_error()
    assert _arrived(site) == [(token, "second")]
    (shown,) = newest_tokens(site.topology, 9)
    assert [(it.subscription, it.overall_latency is None) for it in shown.subscriptions] == [
        ("subscriber", True),
        ("second", False),
    ]
    assert not shown.has_arrived
    _insert(site, 1)
    site.run()
    assert _arrived(site) == [(token, "subscriber"), (token, "second")]


class _Killed(BaseException):
    pass


def _kill_at(failpoint: Failpoint) -> Any:
    def reach(point: Failpoint, *_: object) -> None:
        if point is failpoint:
            raise _Killed

    return reach


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("failpoint", [Failpoint.APPLIED, Failpoint.BEFORE_COMMIT, Failpoint.AFTER_COMMIT])
def test_a_token_arrives_once_though_the_delivery_dies(
    site: Site, failpoint: Failpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = [post_token(site.topology)]
    _insert(site, 1)
    tokens.append(post_token(site.topology))
    site.read_log().raise_error()
    with monkeypatch.context() as patched:
        patched.setattr(delivery, "reach", _kill_at(failpoint))
        with pytest.raises(_Killed):
            site.deliver()
    assert _arrived(site) == []
    site.deliver().raise_error()
    assert _arrived(site) == [(it, "reporting") for it in tokens]
    assert site.at_subscriber(_ROWS) == [(1,)]


def test_what_a_killed_delivery_did_not_record_the_next_look_does(site: Site) -> None:
    token = post_token(site.topology)
    site.run()
    distribution_rows(site, "DELETE FROM mstracer_history")
    assert site.probe_batches("reporting") is not None
    assert _arrived(site) == [(token, "reporting")]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("failpoint", [Failpoint.REGISTERED, Failpoint.ADVANCED])
def test_a_token_is_registered_once_though_the_log_reader_dies(
    site: Site, failpoint: Failpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = post_token(site.topology)
    with monkeypatch.context() as patched:
        patched.setattr(draining, "reach", _kill_at(failpoint))
        with pytest.raises(_Killed):
            site.read_log()
    site.run()
    assert distribution_rows(site, "SELECT token FROM mstracer_tokens") == [(token,)]
    assert _arrived(site) == [(token, "reporting")]


def test_a_distribution_database_that_records_no_arrival_stops_no_delivery(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The connection that records arrivals as they happen is refused; the job records them at its end.

    def refuse(*_: object, **__: object) -> None:
        raise OperationalError("refused")

    token = post_token(site.topology)
    _insert(site, 1)
    monkeypatch.setattr("tranrepl.distribution.recording.connect", refuse)
    site.run()
    assert _arrived(site) == [(token, "reporting")]


def test_tokens_before_a_subscription_began_are_none_of_its_own(databases: DatabasesFactory, tmp_path: Path) -> None:
    subscription = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}
    site = _set_up(Site(databases(), tmp_path / "store", ["public.t"], SparkHere(), [subscription]))
    _insert(site, 1)
    post_token(site.topology)
    site.read_log().raise_error()
    site.take_snapshot().raise_error()
    after = post_token(site.topology)
    site.run()
    assert _arrived(site) == [(after, "reporting")]
    newest, older = newest_tokens(site.topology, 9)
    assert (newest.has_arrived, older.subscriptions) == (True, ())
    assert site.at_subscriber(_ROWS) == [(1,)]


def test_streams_pass_over_tokens(databases: DatabasesFactory, tmp_path: Path, here: SparkHere) -> None:
    subscription = {"name": "reporting", "connection": "subscriber", "subscription_streams": 2}
    site = _set_up(Site(databases(), tmp_path / "store", ["public.t"], here, [subscription]))
    tokens = []
    for row in range(1, 5):
        _insert(site, row)
        tokens.append(post_token(site.topology))
    delivered = site.run()
    assert (delivered.error, delivered.transactions, delivered.commands) == (None, 4, 4)
    assert _arrived(site) == [(it, "reporting") for it in tokens]
    assert site.at_subscriber(_ROWS) == [(it,) for it in range(1, 5)]
    assert site.probe_batches("reporting") is not None


def test_a_bound_before_a_token_leaves_it_for_the_next_run(site: Site) -> None:
    _insert(site, 1)
    first = post_token(site.topology)
    (bound,) = site.at_publisher("SELECT clock_timestamp()")[0]
    second = post_token(site.topology)
    _insert(site, 2)
    site.read_log().raise_error()
    site.deliver(committed_before=bound).raise_error()
    assert _arrived(site) == [(first, "reporting")]
    assert site.at_subscriber(_ROWS) == [(1,)]
    site.deliver().raise_error()
    assert _arrived(site) == [(first, "reporting"), (second, "reporting")]


def test_messages_that_are_no_token_of_ours_are_passed_over(site: Site) -> None:
    with site.topology.publisher("test") as publisher:
        ours = TracerToken.new(publisher.name).message
    other = TracerToken.new("another").message
    site.at_publisher(
        *(f"SELECT pg_logical_emit_message(true, 'tranrepl.tracer', '{it}')" for it in (ours, "no JSON")),
        signed("tracer", f"'{other}'"),
    )
    read = site.read_log()
    assert (read.error, read.commands, len(read.notices)) == (None, 0, 1)
    assert newest_tokens(site.topology, 9) == []


def test_browse_shows_a_token(site: Site) -> None:
    token = post_token(site.topology)
    site.read_log().raise_error()
    with site.topology.distributor() as database:
        record = database.publications.get("purchasing")
        batches, articles = database.batches.after(record, b""), database.articles.by_id(record)
        (shown,) = browse(record, batches, articles, Selection(), site.topology.dialect("reporting"))
    assert (shown.operation, shown.article, shown.command) == ("TRACER_TOKEN", "", f"TRACER TOKEN {token}")


def test_clean_up_keeps_a_token_as_long_as_its_command_and_the_history(site: Site) -> None:
    post_token(site.topology)
    site.read_log().raise_error()
    old = "UPDATE mstracer_tokens SET distributor_commit = distributor_commit - interval '49 hours'"
    distribution_rows(site, old)
    assert clean_up(site.topology).tracer_tokens == 0
    site.deliver().raise_error()
    young = post_token(site.topology)
    site.run()
    done = clean_up(site.topology)
    assert (done.batches, done.tracer_tokens) == (2, 1)
    assert [it.token for it in newest_tokens(site.topology, 9)] == [young]


def test_tracer_interval_posts_a_token_at_each_run_that_is_due(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _set_up(Site(databases(), tmp_path / "store", ["public.t"], SparkHere(), tracer_interval=3600))
    for _ in range(2):
        site.run()
    assert len(_arrived(site)) == 1
    distribution_rows(site, "UPDATE mspublications SET tracer_posted = tracer_posted - interval '1 hour'")
    site.run()
    assert len(_arrived(site)) == 2


def test_a_role_that_may_write_no_message_still_reads_the_log(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _set_up(Site(databases(), tmp_path / "store", ["public.t"], SparkHere(), tracer_interval=1))
    login, password = f"reader_{uuid4().hex[:8]}", uuid4().hex
    owner = site.databases.publisher
    execute(
        owner,
        f"CREATE ROLE {login} LOGIN REPLICATION PASSWORD '{password}'",
        f"GRANT SELECT ON t, tranrepl.message_secret TO {login}",
        f"REVOKE EXECUTE ON FUNCTION {_EMIT} FROM PUBLIC",
    )
    try:
        site.connections["publisher"] = with_login(owner, login, password)
        _insert(site, 1)
        read = site.read_log()
        assert (read.error, read.commands) == (None, 1)
        with pytest.raises(MissingRightError) as refused:
            post_token(site.topology)
        grant = (refused.value.report.remedy or "").splitlines()[-1]
        assert grant == f'GRANT EXECUTE ON FUNCTION pg_catalog.{_EMIT.replace(", ", ",")} TO "{login}";'
        execute(owner, grant)
        token = post_token(site.topology)
        site.run()
        assert token in {it for it, _ in _arrived(site)}
    finally:
        execute(owner, f"DROP OWNED BY {login}", f"DROP ROLE {login}")


def test_the_shell_posts_follows_and_lists_tokens(site: Site, tmp_path: Path) -> None:
    file, environment = publication_file(tmp_path, [{"source": "public.t"}]), site.databases.environment
    posted = typed("trace", file, environment=environment)
    assert (posted.status, posted.err) == (0, "")
    late = typed("trace", file, "--watch", "--timeout", "0.1", environment=environment)
    assert late.status == 1
    assert "the log reader did not register it within 0.1 seconds" in late.err
    assert f"`tranrepl run {file}` reads and delivers it" in late.err
    site.run()
    shown = typed("trace", file, "--list", environment=environment)
    assert (shown.status, shown.out.count("reporting"), shown.out.count("pending")) == (0, 2, 0)
    assert max(map(len, shown.out.splitlines()[:4])) <= 80
    with ThreadPoolExecutor(1) as threads:
        watched = threads.submit(typed, "trace", file, "--watch", environment=environment)
        for _ in range(50):
            site.run()
            if watched.done():
                break
            time.sleep(0.2)
    assert watched.result().status == 0
    assert "registered after" in watched.result().err
    assert "reporting has it after" in watched.result().err


def test_teardown_removes_tokens_that_arrived_and_those_that_did_not(site: Site, tmp_path: Path) -> None:
    file, environment = publication_file(tmp_path, [{"source": "public.t"}]), site.databases.environment
    post_token(site.topology)
    site.run()
    post_token(site.topology)
    site.read_log().raise_error()
    done = typed("teardown", file, "--yes", environment=environment)
    assert done.status == 0, done.err
    assert distribution_rows(site, "SELECT to_regclass('mstracer_tokens'), to_regclass('mstracer_history')") == [
        (None, None)
    ]
