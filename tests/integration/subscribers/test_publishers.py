"""Two Publishers of one name at one Subscriber, and the tables of versions that did not tell them apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from support.command_history import Column, History, seqno
from support.subscribers import KEY, Site
from tranrepl.model.commands import FIRST_XACT_SEQNO
from tranrepl.subscriber.registry import dialect_of
from tranrepl.subscriber.subscription import SubscriptionKey

VENDOR = [Column("id", "integer", key=1), Column("name", "character varying(40)", not_null=True)]
_ANOTHER = replace(KEY, publisher_system="7000000000000000001")
_OTHER_ADDRESS = replace(KEY, publisher="10.0.0.9:5432")


def _set_up(site: Site, key: SubscriptionKey) -> bytes:
    """Set up as `tranrepl setup` does; return the watermark."""
    with dialect_of(site.connection).subscriber(site.connection, key, "test") as subscriber:
        subscriber.set_up_tables()
        subscriber.set_up_watermark()
        return subscriber.watermark()


def test_each_publisher_has_a_watermark_of_its_own(plain_site: Site) -> None:
    site = plain_site
    vendor = site.article("vendor", VENDOR)
    site.deliver(History().insert(vendor, ["1", "one"])).raise_error()
    assert _set_up(site, _ANOTHER) == FIRST_XACT_SEQNO
    with dialect_of(site.connection).subscriber(site.connection, _ANOTHER, "test") as another:
        another.set_up_streams(2)
        another.move_watermark(FIRST_XACT_SEQNO, seqno(7))
        assert another.watermark() == seqno(7)
    assert site.watermark() == seqno(1)


def test_its_publisher_keeps_an_earlier_versions_watermark(plain_site: Site) -> None:
    site = plain_site
    vendor = site.article("vendor", VENDOR)
    site.deliver(History().insert(vendor, ["1", "one"])).raise_error()
    _make_as_before(site)
    assert _set_up(site, KEY) == seqno(1)
    assert _set_up(site, KEY) == seqno(1)
    site.deliver(History(xact=1).transaction().insert(vendor, ["2", "two"]), seqno(1)).raise_error()
    assert site.rows("vendor") == [(1, "one"), (2, "two")]


def test_a_new_publisher_leaves_an_earlier_versions_watermark_alone(plain_site: Site) -> None:
    site = plain_site
    vendor = site.article("vendor", VENDOR)
    site.deliver(History().insert(vendor, ["1", "one"])).raise_error()
    _make_as_before(site)
    new = replace(_OTHER_ADDRESS, publisher_system="7000000000000000001")
    assert _set_up(site, new) == FIRST_XACT_SEQNO
    assert _set_up(site, KEY) == seqno(1)


def _make_as_before(site: Site) -> None:
    """Create the tables at the Subscriber without `publisher_system`, as an earlier version did."""
    for table, last in (
        ("msreplication_subscriptions", "stream"),
        ("msreplication_snapshots", "article, range_number"),
    ):
        key = f"publisher_db, publication, subscription, {last}"
        site.execute(*_alterations(site, table, key))


def _alterations(site: Site, table: str, key: str) -> Sequence[str]:
    match site.kind.database:
        case "postgres":
            return (f"ALTER TABLE {table} DROP COLUMN publisher_system", f"ALTER TABLE {table} ADD PRIMARY KEY ({key})")
        case "mariadb":
            return (
                f"ALTER TABLE {table} DROP PRIMARY KEY, DROP COLUMN publisher_system",
                f"ALTER TABLE {table} ADD PRIMARY KEY ({key})",
            )
        case "sqlite":
            ((created,),) = site.execute(f"SELECT sql FROM sqlite_schema WHERE name = '{table}'")
            columns = [row[1] for row in site.execute(f"PRAGMA table_info({table})") if row[1] != "publisher_system"]
            lines = [line for line in str(created).splitlines() if "publisher_system" not in line]
            old = "\n".join([*(it for it in lines if it != ")"), f"PRIMARY KEY ({key}))"])
            names = ", ".join(columns)
            return (
                f"ALTER TABLE {table} RENAME TO kept",
                old,
                f"INSERT INTO {table} ({names}) SELECT {names} FROM kept",
                "DROP TABLE kept",
            )
        case _:
            rows = site.execute(f"select name from sys.columns where object_id = object_id('{table}')")
            kept = ", ".join(name for (name,) in rows if name != "publisher_system")
            return (
                f"select {kept} into kept from {table}",
                f"drop table {table}",
                f"select * into {table} from kept",
                "drop table kept",
                f"alter table {table} add primary key ({key})",
            )
