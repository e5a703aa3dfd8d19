"""What a run has left behind: stored commands, positions, how transactions arrived, and what sessions sent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa

from support.databases import Databases
from support.object_server import Bucket
from support.site import Rows, Site, execute
from support.spark_here import SparkHere
from tranrepl.admin.browse import BrowsedCommand, Selection, browse
from tranrepl.connections import Connection
from tranrepl.publisher.postgres.lsn import lsn_number
from tranrepl.subscriber.registry import dialect_of

_PATIENCE_SECONDS = 300.0
_POLL_SECONDS = 0.03

ITEM = "CREATE TABLE item (id bigint PRIMARY KEY, xact int NOT NULL, note text)"
ITEM_WITH_ITS_COMMIT = f"{ITEM[:-1]}, applied_in bigint NOT NULL DEFAULT txid_current())"
"""The same at a Subscriber, where each row also tells the Subscriber's transaction that inserted it."""

AUDIT = """
CREATE TABLE audit (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, operation text, id bigint, xact int);
CREATE FUNCTION audit_item() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' THEN
    INSERT INTO public.audit (operation, id, xact) VALUES (TG_OP, OLD.id, OLD.xact);
  ELSE
    INSERT INTO public.audit (operation, id, xact) VALUES (TG_OP, NEW.id, NEW.xact);
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER audit_item AFTER INSERT OR UPDATE OR DELETE ON item FOR EACH ROW EXECUTE FUNCTION audit_item();
"""
"""Every change of an item, at either end, in the order made: what is applied twice or lost shows in it."""
_NOTED = "FOR EACH ROW INSERT INTO audit (operation, id, xact) VALUES ('{0}', {1}.id, {1}.xact)"
_MARIADB_AUDIT = (
    "CREATE TABLE audit (seq bigint AUTO_INCREMENT PRIMARY KEY, operation varchar(6), id bigint, xact int)",
    *(
        f"CREATE TRIGGER audit_{operation} AFTER {operation} ON item {_NOTED.format(operation, row)}"
        for operation, row in (("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD"))
    ),
)
"""The same at a MariaDB Publisher."""


def audit_at(publisher: Connection) -> tuple[str, ...]:
    """Return the statements that audit `item` at a Publisher."""
    return (AUDIT,) if publisher.kind == "postgres" else _MARIADB_AUDIT


def item_article(publisher: Connection) -> dict[str, str]:
    """Return the article of `item` as a publication's file has it."""
    schema = "public" if publisher.kind == "postgres" else publisher.database
    return {"source": f"{schema}.item", "destination": "public.item"}


def audits(site: Site) -> tuple[Rows, Rows]:
    """Return the Publisher's and the Subscriber's audit."""
    query = "SELECT operation, id, xact FROM audit ORDER BY seq"
    return site.at_publisher(query), site.at_subscriber(query)


def audit_by_row(execute_there: Callable[[str], Rows]) -> Rows:
    """Return the audit by row: transactions that overlap write to it in any order, but those that change one row come
    one by one.
    """
    rows = execute_there("SELECT id, operation, xact FROM audit ORDER BY id, seq")
    assert len(rows) > 0
    return rows


TRANSACTIONS_MADE = 60
"""How many `make_transactions` commits where the number is no matter."""


def make_transactions(site: Site, count: int) -> None:
    """Commit `count` transactions at the Publisher: an INSERT in each, and often an UPDATE and a DELETE."""
    if site.databases.publisher.kind != "postgres":
        site.at_publisher(*(it for n in range(1, count + 1) for it in _mariadb_transaction(n)))
        return
    site.at_publisher(
        f"DO $$ BEGIN FOR n IN 1..{count} LOOP "
        "INSERT INTO item VALUES (n, n, 'item ' || n); "
        "UPDATE item SET xact = -n WHERE id = n - n % 7 AND n % 2 = 0; "
        "DELETE FROM item WHERE id = n - 50 AND n % 3 = 0; COMMIT; END LOOP; END $$"
    )


def _mariadb_transaction(n: int) -> Iterator[str]:
    """Yield the statements of a transaction. One in three is prepared first: a group of the log by itself."""
    xa = f"'{n}'"
    yield "BEGIN" if n % 3 else f"XA START {xa}"
    yield f"INSERT INTO item VALUES ({n}, {n}, 'item {n}')"
    if n % 2 == 0:
        yield f"UPDATE item SET xact = -{n} WHERE id = {n - n % 7}"
    if n % 3 == 0:
        yield f"DELETE FROM item WHERE id = {n - 50}"
    yield from ["COMMIT"] if n % 3 else [f"XA END {xa}", f"XA PREPARE {xa}", f"XA COMMIT {xa}"]


def insert_transactions(site: Site, *sizes: int) -> None:
    """Commit one transaction of so many new items for each size; `xact` numbers them from the last one on."""
    for size in sizes:
        site.at_publisher(
            "INSERT INTO item SELECT s.last_id + n, s.last_xact + 1, 'item' FROM "
            "(SELECT coalesce(max(id), 0) AS last_id, coalesce(max(xact), 0) AS last_xact FROM item) s, "
            f"generate_series(1, {size}) n"
        )


def commits(site: Site) -> list[list[int]]:
    """Return the source transactions in each commit at the Subscriber that inserted items, in order."""
    rows = site.at_subscriber("SELECT array_agg(DISTINCT xact ORDER BY xact) FROM item GROUP BY applied_in ORDER BY 1")
    return [[int(xact) for xact in xacts] for (xacts,) in rows]


def watermark(site: Site, subscription: str = "reporting") -> bytes:
    rows = site.at_subscriber(
        "SELECT transaction_timestamp FROM msreplication_subscriptions "
        f"WHERE subscription = '{subscription}' AND stream = 0"
    )
    return bytes(rows[0][0])


def slot_position(site: Site) -> int:
    """Return `confirmed_flush_lsn` of the publication's slot."""
    rows = site.at_publisher(
        "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE database = current_database()"
    )
    return lsn_number(rows[0][0])


def distribution_rows(site: Site, *queries: str) -> Rows:
    """Return the last query's rows of the distribution database."""
    return execute(site.databases.distribution, *queries)


def stored_commands(site: Site) -> list[BrowsedCommand]:
    """Return all registered commands, in order."""
    with site.topology.distributor() as database:
        record = database.publications.get(site.publication.publication)
        batches = database.batches.after(record, b"")
        dialect = dialect_of(site.connections[site.publication.subscriptions[0].connection])
        return list(browse(record, batches, database.articles.by_id(record), Selection(), dialect))


def assert_each_change_was_made_once(site: Site) -> None:
    published, received = audits(site)
    assert len(published) > 0
    assert published == received
    assert site.differences() == []


def assert_each_change_was_made_once_in_any_order(site: Site) -> None:
    """Compare the audits by row: several streams leave the rows of a commit batch in any order."""
    published, received = audits(site)
    assert len(published) > 0
    assert sorted(published) == sorted(received)
    assert site.differences() == []


def assert_each_change_is_stored_once(site: Site) -> None:
    published = site.at_publisher("SELECT operation, count(*) FROM audit GROUP BY 1 ORDER BY 1")
    commands = [it.operation for it in stored_commands(site)]
    assert [(name, commands.count(name)) for name in sorted(set(commands))] == published
    assert distribution_rows(site, "SELECT sum(commands) FROM msrepl_batches") == [(len(commands),)]


def audited_site(
    databases: Databases,
    store: Path | Bucket,
    spark: Any = None,
    *,
    step: int | None = 20,
    **subscription_settings: object,
) -> Site:
    """Return a publication of `item` that is set up and audited at both ends.

    It is read and delivered by `step` transactions, None being the default.
    """
    subscription = {"name": "reporting", "connection": "subscriber", **subscription_settings}
    log_reader = {}
    if step is not None:
        subscription = {"commit_batch_size": step, **subscription}
        log_reader = {"read_batch_size": step}
    site = Site(databases, store, [item_article(databases.publisher)], spark, [subscription], log_reader=log_reader)
    site.at_publisher(ITEM)
    site.set_up()
    site.at_publisher(*audit_at(databases.publisher))
    site.at_subscriber(AUDIT)
    return site


def wait_until(condition: Callable[[], bool], still_possible: Callable[[], bool] = lambda: True) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        assert still_possible(), "it ended before"
        assert time.monotonic() < deadline, f"not within {_PATIENCE_SECONDS} s"
        time.sleep(_POLL_SECONDS)


@contextmanager
def watched(connection: Connection) -> Iterator[Callable[[str], Rows]]:
    """Yield a session in which to query a database again and again."""
    with psycopg.connect(**connection.libpq_parameters("test"), autocommit=True) as session:  # type: ignore[arg-type]
        yield lambda query: session.execute(query.encode()).fetchall()


_SESSIONS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
    "AND backend_type = 'client backend'"
)


def wait_for_sessions_to_end(connection: Connection) -> None:
    """Wait for at most ten seconds. A session reports its row counts when it ends, maybe after its client."""
    until = time.monotonic() + 10
    while execute(connection, _SESSIONS) != [(0,)] and time.monotonic() < until:
        time.sleep(0.01)


@contextmanager
def sent_statements(dialect: str) -> Iterator[list[str]]:
    """Collect what every session of this dialect of SQLAlchemy's sends."""
    sent: list[str] = []

    def note(session: sa.Connection, _cursor: object, statement: str, *_: object) -> None:
        if session.dialect.name == dialect:
            sent.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)


def commit_site(
    databases: Databases, tmp_path: Path, log_reader: Mapping[str, int] | None = None, **limits: int
) -> Site:
    """Return it set up, its jobs' tasks in this process; `limits` are the subscription's."""
    subscription = {"name": "reporting", "connection": "subscriber", **limits}
    site = Site(
        databases, tmp_path / "store", ["public.item"], SparkHere(), [subscription], log_reader=log_reader or {}
    )
    site.at_publisher(ITEM)
    site.at_subscriber(ITEM_WITH_ITS_COMMIT)
    site.set_up()
    return site
