"""A store on object storage, behind a real server: the whole way, and what goes wrong there."""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from conftest import DatabasesFactory
from support.azure_server import AzureServer
from support.child_job import LOG_READER, ChildJob
from support.continuous_delivery import delivering
from support.continuous_reader import continuous_reader
from support.failing_jobs import error_of
from support.object_server import Bucket, BucketServer, ObjectServer
from support.observed import distribution_rows, insert_transactions, stored_commands
from support.proxy import Proxy
from support.site import Site
from support.spark_here import SparkHere
from support.stored_batches import clean_up_at_once, store_in_small_batches
from tranrepl.admin.check import check
from tranrepl.admin.cleanup import clean_up
from tranrepl.admin.early_warnings import new_early_warnings
from tranrepl.admin.publication_ends import LEFT_NOTHING, find_ends
from tranrepl.admin.teardown import plan_teardown_at, tear_down
from tranrepl.distributor import object_store
from tranrepl.distributor.command_store import new_folder
from tranrepl.distributor.store import store_at
from tranrepl.distributor.store_mark import MARK
from tranrepl.errors import ConfigurationError, ErrorKind, InternalError, TransientError
from tranrepl.failpoint import Failpoint

_SERVERS = {"s3": "object_server", "az": "azure_server", "gs": "google_server"}
each_kind = pytest.mark.parametrize(
    "server", ["s3", *(pytest.param(it, marks=pytest.mark.slow) for it in ("az", "gs"))], indirect=True
)


@pytest.fixture
def server(request: pytest.FixtureRequest) -> BucketServer:
    """Return the run's server, of S3's protocol where the test does not say of each kind."""
    found: BucketServer = request.getfixturevalue(_SERVERS[getattr(request, "param", "s3")])
    return found


@pytest.fixture
def bucket(server: BucketServer) -> Bucket:
    return server.new_bucket()


MakeSite = Callable[..., Site]


_ITEM = "CREATE TABLE item (id int PRIMARY KEY, xact int, note text)"


@pytest.fixture
def make_site(databases: DatabasesFactory, bucket: Bucket) -> MakeSite:
    """Return what makes a publication whose store is in the bucket, with a table at both ends."""

    def make(spark: Any, log_reader: dict[str, object] | None = None, **subscription: object) -> Site:
        settings = {"log_reader": log_reader or {}}
        site = Site(databases(), bucket, ["public.item"], spark, [_reporting(**subscription)], **settings)
        site.at_publisher(_ITEM)
        site.set_up()
        return site

    return make


def _reporting(**settings: object) -> dict[str, object]:
    return {"name": "reporting", "connection": "subscriber", **settings}


def _batches(server: BucketServer, bucket: Bucket) -> list[str]:
    return [it for it in server.objects(bucket.name) if MARK not in it]


@each_kind
def test_changes_pass_through_a_bucket(
    make_site: MakeSite, server: BucketServer, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = make_site(SparkHere())
    assert server.objects(bucket.name) == [f"a/store/{MARK}"]
    assert check(site.topology).problems == []
    insert_transactions(site, 3, 5)
    with monkeypatch.context() as patched:
        # Nothing is listed on the way.
        patched.setattr(object_store.ObjectStore, "_listed", None)
        site.run()
    assert site.differences() == []
    ((folder,),) = distribution_rows(site, "SELECT folder FROM msrepl_batches")
    assert _batches(server, bucket) == [f"a/store/{folder}/part-0.parquet"]
    assert [it.operation for it in stored_commands(site)] == ["INSERT"] * 8
    assert new_early_warnings(site.topology) == []
    assert clean_up(site.topology).batches == 1
    assert server.objects(bucket.name) == [f"a/store/{MARK}"]
    insert_transactions(site, 1)
    site.read_log().raise_error()
    # Without the file, the store's connection is found by the mark.
    other = replace(server.refused_connections()[0], connection_id="other")
    given = [other, *site.connections.values()]
    ends = find_ends("purchasing", site.databases.distribution, given, LEFT_NOTHING, "test")
    tear_down(plan_teardown_at(ends), lambda _: None)
    assert server.objects(bucket.name) == []


@each_kind
@pytest.mark.spark
def test_workers_of_spark_reach_the_bucket(make_site: MakeSite, spark: Any) -> None:
    site = make_site(spark, subscription_streams=2)
    # Large enough to be read by row groups, and written in parts.
    site.at_publisher(
        "INSERT INTO item SELECT n, n, (SELECT string_agg(md5((n * m)::text), '') FROM generate_series(1, 40) m) "
        "FROM generate_series(1, 12000) n"
    )
    insert_transactions(site, 2)
    site.run()
    assert site.differences() == []


@pytest.mark.parametrize(
    ("settings", "seconds"), [({}, 0.25), pytest.param({"gathering_interval": 1.5}, 1.5, marks=pytest.mark.slow)]
)
def test_continuous_agents_gather_what_a_request_is_paid_for(
    make_site: MakeSite, server: BucketServer, bucket: Bucket, settings: dict[str, object], seconds: float
) -> None:
    site = make_site(SparkHere(), settings)
    with continuous_reader(site) as reader, delivering(site) as delivery:
        reader.wait_until_it_follows()
        for _ in range(30):
            insert_transactions(site, 1)
            time.sleep(seconds / 10)
        reader.stop().raise_error()
        delivery.wait_until_delivered()
        delivery.result().raise_error()
    ((batches, commands),) = distribution_rows(site, "SELECT count(*), sum(commands) FROM msrepl_batches")
    assert commands == 30
    assert batches < 15
    times = [it for (it,) in distribution_rows(site, "SELECT entry_time FROM msrepl_batches ORDER BY 1")]
    # The last one holds what was there at the end.
    assert [it for it in itertools.pairwise(times[:-1]) if (it[1] - it[0]).total_seconds() < seconds] == []
    assert len(_batches(server, bucket)) == batches
    assert site.differences() == []


@pytest.mark.parametrize(
    ("server", "number"),
    [
        ("s3", 12),
        *(pytest.param(*it, marks=pytest.mark.slow) for it in (("s3", 2_000), ("az", 100), ("gs", 150))),
    ],
    indirect=["server"],
)
def test_small_batches_are_put_together(make_site: MakeSite, server: BucketServer, bucket: Bucket, number: int) -> None:
    site = make_site(SparkHere())
    site.at_publisher(
        f"DO $$ BEGIN FOR n IN 1..{number} LOOP INSERT INTO item VALUES (n, n, n); COMMIT; END LOOP; END $$"
    )
    site.read_log().raise_error()
    assert store_in_small_batches(site) == number
    assert clean_up(site.topology).merged_batches == number
    assert len(_batches(server, bucket)) == number + 1
    assert site.deliver().transactions == number
    assert site.differences() == []
    done = clean_up_at_once(site)
    assert (done.batches, done.orphan_folders, _batches(server, bucket)) == (1, number, [])


@each_kind
def test_a_subscription_is_initialized_where_the_store_is_a_bucket(databases: DatabasesFactory, bucket: Bucket) -> None:
    site = Site(databases(), bucket, ["public.item"], SparkHere(), [_reporting(sync_type="automatic")])
    site.at_publisher(_ITEM)
    insert_transactions(site, 100)
    site.set_up()
    insert_transactions(site, 10)
    site.read_log().raise_error()
    site.take_snapshot().raise_error()
    insert_transactions(site, 3)
    site.run()
    assert site.at_subscriber("SELECT count(*) FROM item") == [(113,)]
    assert site.differences() == []


@pytest.mark.slow
def test_continuous_agents_follow_where_each_request_takes_15_ms_more(
    make_site: MakeSite, object_server: ObjectServer
) -> None:
    site = make_site(SparkHere())
    with Proxy(object_server.address, delay=0.015) as proxy:
        slow = f"http://127.0.0.1:{proxy.connection.port}"
        given = object_server.connection()
        site.connections["store"] = replace(given, options={**given.options, "endpoint_url": slow})
        with continuous_reader(site) as reader, delivering(site) as delivery:
            for _ in range(30):
                insert_transactions(site, 1)
                time.sleep(0.1)
            reader.stop().raise_error()
            delivery.wait_until_delivered()
            delivery.result().raise_error()
        site.run()
    assert site.differences() == []


def _refusal(site: Site) -> ConfigurationError:
    """Return the one problem that `check` finds."""
    (problem,) = check(site.topology).problems
    assert isinstance(problem, ConfigurationError)
    used = site.connections["store"]
    secrets = (used.password, used.options.get("sas_token"), used.options.get("keyfile_dict"))
    assert not [it for it in secrets if it and it in str(problem)]
    return problem


@each_kind
def test_what_keeps_the_store_from_being_used_is_named(
    make_site: MakeSite, server: BucketServer, bucket: Bucket
) -> None:
    site = make_site(SparkHere())
    url = bucket.store
    for wrong in server.refused_connections():
        site.connections["store"] = wrong
        problem = _refusal(site)
        assert problem.message.startswith(f"distributor.store: {url} cannot be asked to write: ")
        assert problem.report.remedy == "let connection store read, write, list and delete there"
    site.connections["store"] = server.connection(may_write=False)
    assert f"{url} cannot be asked to write: {server.forbidden}" in _refusal(site).message
    site.connections["store"] = replace(server.connection(), kind="postgres")
    assert "is of type 'postgres'" in _refusal(site).message
    options = {**server.connection().options, "role_arn": "arn:aws:iam::1:role/it"}
    site.connections["store"] = replace(server.connection(), options=options)
    assert "of its extra is not used: role_arn" in _refusal(site).message
    site.connections["store"] = server.connection()
    _move(site, f"{server.scheme}://absent/store")
    assert _refusal(site).message == f"distributor.store: '{server.scheme}://absent/store': there is no bucket absent"


def _move(site: Site, store: str) -> None:
    distributor = site.publication.distributor.model_copy(update={"store": store})
    site.publication = site.publication.model_copy(update={"distributor": distributor})


@each_kind
def test_a_batch_that_is_gone_is_damaged_and_a_bucket_that_is_gone_is_not(
    make_site: MakeSite, server: BucketServer, bucket: Bucket
) -> None:
    site = make_site(SparkHere())
    insert_transactions(site, 1)
    site.read_log().raise_error()
    (name,) = _batches(server, bucket)
    kept = server.get(bucket.name, name)
    server.delete(bucket.name, name)
    error = error_of(Site.deliver, site)
    assert (error.kind, error.damaged_batch) == (ErrorKind.CONFIGURATION, True)
    assert f"restore {bucket.store}/" in (error.remedy or "")
    server.put(bucket.name, name, kept[:-100])
    assert error_of(Site.deliver, site).damaged_batch
    distribution_rows(site, f"UPDATE mspublications SET store = '{server.scheme}://absent/store'")
    error = error_of(Site.deliver, site)
    assert (error.kind, error.damaged_batch) == (ErrorKind.CONFIGURATION, False)
    assert "there is no bucket absent" in error.message
    distribution_rows(site, f"UPDATE mspublications SET store = '{bucket.store}'")
    server.put(bucket.name, name, kept)
    site.deliver().raise_error()
    assert site.differences() == []


def test_a_server_that_stalls_for_a_moment_costs_only_time(make_site: MakeSite, server: BucketServer) -> None:
    site = make_site(SparkHere())
    insert_transactions(site, 1)
    server.signal(signal.SIGSTOP)
    threading.Timer(2.0, server.signal, [signal.SIGCONT]).start()
    site.run()
    assert site.differences() == []


@pytest.mark.slow
def test_a_server_that_stalls_while_a_batch_is_read_does_not_hold_the_delivery_for_ever(
    server: BucketServer, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(object_store._TRIES, "retry_timeout", timedelta(seconds=2))
    monkeypatch.setitem(object_store._WAITING, "timeout", "1s")
    store, folder = store_at(bucket.store, bucket.connection), new_folder()
    written = store.new_file(folder)
    written.write(os.urandom(12 * 1024 * 1024))
    written.close()
    with store.open(folder) as file:
        file.read(1)
        server.signal(signal.SIGSTOP)
        try:
            file.seek(8 * 1024 * 1024)
            with pytest.raises(TransientError, match="cannot be asked to read"):
                file.read(1)
        finally:
            server.signal(signal.SIGCONT)
    object_store._client.cache_clear()


@each_kind
def test_a_log_reader_that_is_killed_leaves_an_object_that_goes(
    make_site: MakeSite, server: BucketServer, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = make_site(None)
    insert_transactions(site, 1)
    with ChildJob(LOG_READER, site, Failpoint.STORED) as job:
        assert job.killed()
    (orphan,) = _batches(server, bucket)
    foreign = f"a/store/{new_folder()}/another"
    server.put(bucket.name, foreign, b"")
    site.spark = SparkHere()
    site.run()
    assert site.differences() == []
    assert clean_up_at_once(site).orphan_folders == 1
    assert orphan not in _batches(server, bucket)
    assert foreign in _batches(server, bucket)


@pytest.mark.slow
def test_a_server_that_is_killed_in_the_middle_of_a_batch_costs_a_retry(
    databases: DatabasesFactory, server_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ObjectServer(server_folder / "killed") as server:
        bucket = server.new_bucket()
        site = Site(databases(), bucket, ["public.item"], SparkHere(), [_reporting()])
        site.at_publisher(_ITEM)
        site.set_up()
        site.at_publisher(
            "INSERT INTO item SELECT n, n, (SELECT string_agg(md5((n * m)::text), '') FROM generate_series(1, 40) m) "
            "FROM generate_series(1, 20000) n"
        )
        write, written = object_store._NewFile.write, itertools.count(1)

        def killing(file: Any, data: bytes) -> int:
            if next(written) == 20:
                server.kill()
            return write(file, data)

        with monkeypatch.context() as patched:
            patched.setattr(object_store._NewFile, "write", killing)
            error = error_of(Site.read_log, site)
        assert error.kind is ErrorKind.TRANSIENT
        assert distribution_rows(site, "SELECT count(*) FROM msrepl_batches") == [(0,)]
        server.start()
        _run_until_it_is_up(site)
        assert site.differences() == []
        # A part of the log that was written whole before could not be removed.
        clean_up_at_once(site)
        assert _batches(server, bucket) == []


def _run_until_it_is_up(site: Site) -> None:
    """Run as often as a server that has just started answers that it is not ready."""
    until = time.monotonic() + 60
    while True:
        try:
            site.run()
        except TransientError:
            assert time.monotonic() < until
        else:
            return


def test_a_server_that_is_away_is_a_reason_to_run_again(
    make_site: MakeSite, server: BucketServer, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(object_store._TRIES, "max_retries", 1)
    object_store._client.cache_clear()
    site = make_site(SparkHere())
    insert_transactions(site, 1)
    site.connections["store"] = replace(
        server.connection(), options={"endpoint_url": "http://127.0.0.1:1", "region_name": "us-east-1"}
    )
    error = error_of(Site.read_log, site)
    assert error.kind is ErrorKind.TRANSIENT
    assert distribution_rows(site, "SELECT count(*) FROM msrepl_batches") == [(0,)]
    site.connections["store"] = server.connection()
    site.run()
    assert site.differences() == []
    object_store._client.cache_clear()


@each_kind
def test_of_two_that_mark_a_store_the_first_one_does(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_at(bucket.store, bucket.connection)
    # Neither sees the other's.
    monkeypatch.setattr(object_store.ObjectStore, "read_text", lambda *_: None)
    for text in ("first", "second"):
        store.write_text(MARK, text)
    monkeypatch.undo()
    assert store.read_text(MARK) == "first"


def test_without_obstore_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(ConfigurationError, match=r"the driver obstore \(tranrepl's extra object-store\) is not"):
        store_at("s3://bucket/store").read_text(MARK)


def test_no_secret_is_shown_and_the_client_is_not_taken_over_a_fork(server: BucketServer, bucket: Bucket) -> None:
    connection = server.connection()
    store = store_at(f"s3://{bucket.name}/store", connection)
    assert (connection.password or "-") not in repr(store)
    assert pickle.loads(pickle.dumps(store)) == store  # noqa: S301 — as Spark does
    assert list(store.folders()) == []
    child = os.fork()
    if child == 0:
        try:
            list(store.folders())
        except InternalError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.slow
def test_a_connections_token_is_used_and_no_key_of_the_machine(
    azure_server: AzureServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = azure_server.new_bucket()
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", azure_server.connection().password or "")
    store = store_at(bucket.store, azure_server.connection(may_write=False))
    assert store.read_text(MARK) is None
    with pytest.raises(ConfigurationError, match=azure_server.forbidden):
        store.write_text(MARK, "")


def test_the_machines_own_identity_is_used_where_a_connection_has_no_keys(
    server: BucketServer, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = server.connection()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", connection.login or "")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", connection.password or "")
    without_keys = replace(connection, login=None, password=None)
    assert list(store_at(f"s3://{bucket.name}", without_keys).problems()) == []
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    # A connection's keys are its own: nothing of the machine's is mixed with them.
    assert list(store_at(f"s3://{bucket.name}/beside", connection).problems()) == []
    object_store._client.cache_clear()
