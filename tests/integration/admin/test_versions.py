"""A newer version's tables are refused by every verb, and nothing is changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

import tranrepl.distributor
from conftest import DatabasesFactory
from support.in_process import deliver_stored, read_log_into_store
from support.item_site import command
from support.observed import ITEM, distribution_rows, insert_transactions
from support.site import Site, execute
from tranrepl import __version__
from tranrepl.distributor.version import REVISION
from tranrepl.errors import ConfigurationError
from tranrepl.subscriber.replication_tables import REVISION as SUBSCRIBER_REVISION

_NEWER = "which is newer than this one"
_REMEDY = "pip install 'tranrepl>=9.9.9'"


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    """Store one transaction that waits for delivery."""
    site = Site(databases(migrated=False), tmp_path / "store", ["public.item"])
    site.at_publisher(ITEM)
    site.set_up()
    insert_transactions(site, 1)
    read_log_into_store(site).raise_error()
    return site


def test_the_revision_of_this_version_is_alembics_last() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(tranrepl.distributor.__file__).parent / "migrations"))
    assert ScriptDirectory.from_config(config).get_current_head() == REVISION


def test_setup_writes_down_the_version_that_made_the_distribution_database(site: Site) -> None:
    site.set_up()
    assert distribution_rows(site, "SELECT revision, version FROM msrepl_version") == [(REVISION, __version__)]


def test_setup_reports_tables_that_it_only_migrates(site: Site, tmp_path: Path) -> None:
    assert command(site, tmp_path, "setup").out == "purchasing: nothing to do\n"
    execute(site.databases.distribution, "UPDATE msrepl_version SET version = '0.0.1'")
    site.at_subscriber("UPDATE msrepl_version SET revision = 0, version = '0.0.1'")
    distribution = site.databases.distribution.database
    current, subscribers_current = (f"revision {it} ({__version__})" for it in (REVISION, SUBSCRIBER_REVISION))
    assert command(site, tmp_path, "setup").out.splitlines() == [
        f"  migrated the tables of distribution database {distribution} from revision {REVISION} (0.0.1) to {current}",
        f"  migrated the tables of Subscriber reporting from revision 0 (0.0.1) to {subscribers_current}",
        "purchasing: set up",
    ]
    assert command(site, tmp_path, "setup").out == "purchasing: nothing to do\n"


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("verb", ["check", "setup", "log-reader", "distribute", "cleanup", "status"])
def test_a_newer_distribution_database_is_refused(site: Site, tmp_path: Path, verb: str) -> None:
    newer = "UPDATE msrepl_version SET revision = '9999', version = '9.9.9'"
    execute(site.databases.distribution, newer, "UPDATE tranrepl_version SET version_num = '9999'")
    outcome = command(site, tmp_path, verb)
    assert outcome.status != 0
    said = outcome.out + outcome.err
    assert _NEWER in " ".join(said.split())
    assert _REMEDY in " ".join(said.split())
    assert distribution_rows(site, "SELECT version FROM msrepl_version") == [("9.9.9",)]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("verb", ["check", "setup", "distribute"])
def test_a_subscriber_of_a_newer_version_is_refused(site: Site, tmp_path: Path, verb: str) -> None:
    site.at_subscriber("UPDATE msrepl_version SET revision = 99, version = '9.9.9'")
    outcome = command(site, tmp_path, verb)
    assert outcome.status == 1
    assert f"the tables of Subscriber reporting: made by tranrepl 9.9.9, {_NEWER}" in outcome.err
    assert _REMEDY in outcome.err
    assert site.at_subscriber("SELECT revision FROM msrepl_version") == [(99,)]


def test_a_delivery_changes_nothing_at_a_newer_subscriber(site: Site) -> None:
    site.at_subscriber("UPDATE msrepl_version SET revision = 99, version = '9.9.9'")
    with pytest.raises(ConfigurationError, match=_NEWER):
        deliver_stored(site)
    assert site.at_subscriber("SELECT * FROM item") == []
