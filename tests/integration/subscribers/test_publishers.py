"""Two Publishers of one name at one Subscriber."""

from __future__ import annotations

from dataclasses import replace

from support.command_history import Column, History, seqno
from support.subscribers import KEY, Site
from tranrepl.model.commands import FIRST_XACT_SEQNO
from tranrepl.subscriber.registry import dialect_of
from tranrepl.subscriber.subscription import SubscriptionKey

VENDOR = [Column("id", "integer", key=1), Column("name", "character varying(40)", not_null=True)]
_ANOTHER = replace(KEY, publisher_system="7000000000000000001")


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
