"""The tables at a Subscriber carry the version that created them, whatever the database."""

from __future__ import annotations

import pytest

from support.command_history import Column
from support.subscribers import KEY, Site
from tranrepl import __version__
from tranrepl.errors import ConfigurationError
from tranrepl.subscriber.registry import dialect_of
from tranrepl.subscriber.replication_tables import REVISION, THIS_VERSION, TablesVersion

VENDOR = [Column("id", "integer", key=1), Column("name", "character varying(40)", not_null=True)]
VERSION = "SELECT revision, version FROM msrepl_version"


def _found(site: Site) -> TablesVersion | None:
    with dialect_of(site.connection).subscriber(site.connection, KEY, "test") as subscriber:
        return subscriber.tables_version()


def _set_up(site: Site) -> None:
    with dialect_of(site.connection).subscriber(site.connection, KEY, "test") as subscriber:
        subscriber.set_up_tables()


def test_setup_writes_the_version_down_once(plain_site: Site) -> None:
    site = plain_site
    assert _found(site) is None
    for _ in range(2):
        _set_up(site)
    assert [tuple(row) for row in site.execute(VERSION)] == [(REVISION, __version__)]
    assert _found(site) == THIS_VERSION


def test_tables_of_an_earlier_version_are_refused_until_setup(plain_site: Site) -> None:
    site = plain_site
    site.article("vendor", VENDOR)
    site.execute(f"UPDATE msrepl_version SET revision = {REVISION - 1}, version = '0.0.1'")
    found = _found(site)
    assert found == TablesVersion(REVISION - 1, "0.0.1")
    with pytest.raises(ConfigurationError, match="are of an earlier version of tranrepl") as refused:
        found.require_current("Subscriber reporting")
    assert refused.value.report.remedy == "run `tranrepl setup FILE`"
    _set_up(site)
    assert _found(site) == THIS_VERSION


def test_another_version_of_the_same_tables_is_no_matter_and_is_replaced(plain_site: Site) -> None:
    site = plain_site
    _set_up(site)
    site.execute("UPDATE msrepl_version SET version = '0.0.1'")
    found = _found(site)
    assert found == TablesVersion(REVISION, "0.0.1")
    found.require_current("Subscriber reporting")
    _set_up(site)
    assert _found(site) == THIS_VERSION


def test_setup_refuses_tables_that_a_newer_version_made(plain_site: Site) -> None:
    site = plain_site
    _set_up(site)
    site.execute("UPDATE msrepl_version SET revision = 99, version = '9.9.9'")
    with pytest.raises(ConfigurationError, match=r"made by tranrepl 9\.9\.9, which is newer than this one") as refused:
        _set_up(site)
    assert refused.value.report.remedy == "install that version here: pip install 'tranrepl>=9.9.9'"
    assert [tuple(row) for row in site.execute(VERSION)] == [(99, "9.9.9")]
