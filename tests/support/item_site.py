"""A publication of one table at a Publisher of its own, what a person does and sees when its server changes, and what
others do to its replication slot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from support.databases import Databases
from support.embedded_postgres import PostgresServer
from support.in_process import replicate_stored
from support.mariadb import MariaDbServer
from support.observed import item_article
from support.shell import Outcome, publication_file, typed
from support.site import Rows, Site, execute
from tranrepl.connections import variable_name
from tranrepl.errors import MustBeReinitializedError

DATABASE = "publisher"


def item_site(
    server: PostgresServer | MariaDbServer, others: Databases, folder: Path, database: str = DATABASE
) -> Site:
    """Set up with a snapshot; the Subscriber and the distribution database are those of `others`."""
    databases = replace(others, publisher=server.connection(database, "publisher"))
    article = {**item_article(databases.publisher), "pre_creation_cmd": "truncate"}
    subscription = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}
    site = Site(databases, folder / "store", [article], subscriptions=[subscription])
    site.at_publisher("CREATE TABLE item (id bigint PRIMARY KEY, note text)")
    site.set_up()
    site.take_snapshot()
    return site


def run(site: Site) -> None:
    """Read the log and deliver. Raises what stopped it."""
    replicate_stored(site)


def record_history(site: Site) -> None:
    """Record the end of `run` in the history, as the next probe does for a job that was killed."""
    assert site.probe_batches("reporting") is not None


def insert(site: Site, first: int, last: int, note: str) -> None:
    """Insert each row in a transaction of its own."""
    site.at_publisher(*(f"INSERT INTO item VALUES ({n}, '{note}')" for n in range(first, last + 1)))


def grow(site: Site, past: bytes) -> None:
    """Write what is not ours until the log ends after this transaction, and then some."""
    site.at_publisher("CREATE TABLE IF NOT EXISTS other (filler text)")
    filler = (
        "SELECT repeat('x', 1000) FROM generate_series(1, 200)" if _is_postgres(site) else "VALUES (repeat('x', 60000))"
    )
    while end_of_log(site) <= past:
        site.at_publisher(f"INSERT INTO other {filler}")


def _is_postgres(site: Site) -> bool:
    return site.databases.publisher.kind == "postgres"


def end_of_log(site: Site) -> bytes:
    """Return the log's end as an xact_seqno."""
    if not _is_postgres(site):
        with site.topology.publisher("test") as publisher:
            return publisher.positions.watermark(publisher.end_of_log())
    ((end,),) = site.at_publisher("SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn")
    return int(end).to_bytes(8, "big")


def slot_rows(site: Site) -> Rows:
    """Return where the slot is, where there is one."""
    if not _is_postgres(site):
        return []
    return site.at_publisher(
        "SELECT confirmed_flush_lsn::text FROM pg_replication_slots "
        "WHERE database = current_database() AND NOT temporary"
    )


def registered_rows(site: Site) -> Rows:
    """Return what is registered of the log."""
    distribution = site.databases.distribution
    return execute(distribution, "SELECT * FROM mspublications") + execute(distribution, "SELECT * FROM msrepl_batches")


def go_to(site: Site, server: PostgresServer | MariaDbServer) -> None:
    """Point the publication's connection at this server from now on."""
    connection = server.connection(DATABASE, "publisher")
    site.databases = replace(site.databases, publisher=connection)
    site.connections["publisher"] = connection


def command(site: Site, folder: Path, *arguments: str, publisher: str | None = None) -> Outcome:
    """Type a verb with the publication's file. `publisher` is another value of the Publisher's connection."""
    articles = [
        {
            "source": str(it.source),
            "destination": str(it.destination_table),
            "pre_creation_cmd": str(it.pre_creation_cmd),
            "truncate": str(it.truncate),
        }
        for it in site.publication.articles
    ]
    subscriptions = [
        {"name": it.name, "connection": it.connection, "sync_type": str(it.sync_type)}
        for it in site.publication.subscriptions
    ]
    store = {"connection": "distribution", "store": site.publication.distributor.store}
    file = publication_file(
        folder,
        articles,
        subscriptions=subscriptions,
        distributor=store,
        replicate_ddl=site.publication.replicate_ddl,
    )
    verb, *rest = arguments
    exported = {} if publisher is None else {variable_name("publisher"): publisher}
    return typed(verb, file, *rest, environment={**site.databases.environment, **exported})


def assert_refused_everywhere(site: Site, folder: Path, *said: str) -> None:
    """See that the run, `check`, `setup` and `status` refuse it, and that nothing is moved."""
    before = slot_rows(site), registered_rows(site)
    with pytest.raises(MustBeReinitializedError) as refused:
        run(site)
    told = [str(refused.value)]
    told += [(it := command(site, folder, verb)).out + it.err for verb in ("check", "setup", "status", "run")]
    for text in told:
        flat = " ".join(text.split()).replace(str(folder / "purchasing.yaml"), "FILE")
        for words in (*said, "`tranrepl reinitialize FILE`"):
            assert words in flat, (words, text)
    assert (slot_rows(site), registered_rows(site)) == before


def assert_reinitializes(site: Site, folder: Path) -> None:
    """Run `tranrepl reinitialize FILE`, and see that replication goes on."""
    outcome = command(site, folder, "reinitialize")
    assert outcome.status == 0, outcome.err
    assert_goes_on(site, folder)


def assert_goes_on(site: Site, folder: Path) -> None:
    assert site.differences() == []
    insert(site, 1001, 1003, "later")
    run(site)
    assert site.differences() == []
    outcome = command(site, folder, "check")
    assert outcome.status == 0, outcome.err


def slot_name(site: Site) -> str:
    ((name,),) = site.at_publisher("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()")
    return str(name)


def drop_slot(site: Site) -> None:
    site.at_publisher(f"SELECT pg_drop_replication_slot('{slot_name(site)}')")


def recreate_slot(site: Site, *meanwhile: str) -> None:
    """Create the slot again at the log's end, after what was done while there was none."""
    name = slot_name(site)
    drop_slot(site)
    site.at_publisher(*meanwhile, f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')")


def advance_slot(site: Site) -> None:
    """Advance the slot past what was not read."""
    site.at_publisher(f"SELECT pg_replication_slot_advance('{slot_name(site)}', pg_current_wal_flush_lsn())")
