"""What agents tell one another at once: after the commit, to who listens, and again after a session was lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.observed import ITEM, make_transactions, wait_until
from support.site import Site, execute
from support.spark_here import SparkHere
from tranrepl.distributor import notifications
from tranrepl.distributor.notifications import HANDOVER, REGISTERED, TRIED, Listener, Notification, notify
from tranrepl.errors import TransientError

_LISTENING = "FROM pg_stat_activity WHERE application_name = 'tranrepl listening'"


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    site = Site(databases(), tmp_path / "store", ["public.item"], SparkHere())
    site.at_publisher(ITEM)
    site.set_up()
    return site


@pytest.fixture
def listener(site: Site) -> Iterator[Listener]:
    with Listener(site.topology.distributor_connection, _publication_id(site)) as listener:
        yield listener


def _publication_id(site: Site) -> int:
    with site.topology.distributor() as database:
        return database.publications.get(site.publication.publication).publication_id


def _tell(site: Site, *received: Notification, publication_id: int | None = None) -> None:
    with site.topology.distributor() as database, database.transaction() as connection:
        for it in received:
            notify(connection, publication_id or _publication_id(site), it)


def _tell_in_vain(site: Site) -> None:
    with site.topology.distributor() as database, database.transaction() as connection:
        notify(connection, _publication_id(site), HANDOVER)
        raise TransientError("not now")


def test_who_listens_is_told_of_a_registered_batch(site: Site, listener: Listener) -> None:
    make_transactions(site, 1)
    assert listener.wait(0.0) == set()
    site.read_log()
    assert listener.wait(5.0) == {REGISTERED}
    site.read_log()
    assert listener.wait(0.2) == set()


def test_each_thing_is_told_once_and_only_to_its_publication(site: Site, listener: Listener) -> None:
    _tell(site, HANDOVER, publication_id=_publication_id(site) + 1)
    _tell(site, HANDOVER, TRIED, HANDOVER)
    assert listener.wait(5.0) == {HANDOVER, TRIED}
    assert listener.wait(0.0) == set()


def test_what_was_told_is_asked_for_without_waiting(site: Site, listener: Listener) -> None:
    assert listener.received() == set()
    _tell(site, TRIED)
    wait_until(lambda: listener.received() == {TRIED})
    assert listener.received() == set()


def test_nothing_is_told_of_a_transaction_that_fails(site: Site, listener: Listener) -> None:
    with pytest.raises(TransientError):
        _tell_in_vain(site)
    assert listener.wait(0.2) == set()


def test_what_a_later_version_tells_is_passed_over(site: Site, listener: Listener) -> None:
    execute(site.topology.distributor_connection, f"SELECT pg_notify('tranrepl_{_publication_id(site)}', 'dance:x')")
    _tell(site, HANDOVER)
    received: set[Notification] = set()
    while not received:
        received = listener.wait(5.0)
    assert received == {HANDOVER}


@pytest.mark.new_sessions
def test_a_listener_whose_session_is_lost_waits_and_listens_again(
    site: Site, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "_CONNECT_AGAIN_SECONDS", 0.5)
    execute(site.topology.distributor_connection, f"SELECT pg_terminate_backend(pid, 5000) {_LISTENING}")
    assert listener.wait(5.0) == set()
    assert listener.fileno() is None
    begun = time.monotonic()
    listener.wait(0.2)
    assert time.monotonic() - begun >= 0.2
    time.sleep(0.5)
    listener.wait(0.0)
    _tell(site, HANDOVER)
    assert listener.wait(5.0) == {HANDOVER}
