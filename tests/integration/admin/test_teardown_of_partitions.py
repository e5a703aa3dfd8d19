"""`tranrepl teardown` puts replica identities of partitions back where it is certain what they had."""

from __future__ import annotations

from pathlib import Path

from conftest import DatabasesFactory
from support.site import Site
from support.spark_here import SparkHere
from tranrepl.admin.teardown import plan_teardown, tear_down

_IDENTITIES = "SELECT relname, relreplident::text FROM pg_class WHERE relname ~ '^event' AND relkind IN ('r', 'p')"


def test_partitions_get_back_what_they_had_or_are_named(databases: DatabasesFactory, tmp_path: Path) -> None:
    article = {"source": "public.event", "ins_cmd": "SQL", "upd_cmd": "SQL", "del_cmd": "SQL"}
    site = Site(databases(), tmp_path / "store", [article], SparkHere(), replicate_ddl=True)
    site.at_publisher(
        "CREATE TABLE event (id int PRIMARY KEY, note text) PARTITION BY RANGE (id)",
        *(f"CREATE TABLE event_{it} PARTITION OF event FOR VALUES FROM ({it}) TO ({it + 1})" for it in (1, 2)),
    )
    site.set_up()
    site.at_publisher(
        *(f"CREATE TABLE event_{it} PARTITION OF event FOR VALUES FROM ({it}) TO ({it + 1})" for it in (3, 4)),
        "CREATE TABLE event_5 (LIKE event INCLUDING ALL)",
        "ALTER TABLE event ATTACH PARTITION event_5 FOR VALUES FROM (5) TO (6)",
    )
    site.run()
    site.at_publisher("ALTER TABLE event DETACH PARTITION event_2", "ALTER TABLE event DETACH PARTITION event_4")
    site.run()
    assert {identity for _, identity in site.at_publisher(_IDENTITIES)} == {"f"}
    planned = plan_teardown(site.topology)
    stays = [it for part in planned.parts for it in part.stays if "IDENTITY" in it]
    assert [it.split(":")[0].rpartition(".")[2] for it in stays] == ["event_4", "event_5"]
    assert all("it is or was a partition, and what it had before is not known" in it for it in stays)
    tear_down(planned, lambda _: None)
    assert dict(site.at_publisher(_IDENTITIES)) == {
        **dict.fromkeys(("event", "event_1", "event_2", "event_3"), "d"),
        **dict.fromkeys(("event_4", "event_5"), "f"),
    }
