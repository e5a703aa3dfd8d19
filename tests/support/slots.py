"""What somebody does to a publication's replication slot, behind our back."""

from __future__ import annotations

from support.site import Site


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
