"""A command store belongs to one distribution database: no other one writes to it, or cleans it up."""

from __future__ import annotations

import os
import shutil
import time
from datetime import timedelta
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.databases import Databases
from support.embedded_postgres import PostgresServer
from support.in_process import read_log_into_store
from support.observed import distribution_rows
from support.site import Site
from support.spark_here import SparkHere
from support.whole_run import good_run
from tranrepl.admin.check import check
from tranrepl.admin.cleanup import clean_up
from tranrepl.admin.teardown import plan_teardown, tear_down
from tranrepl.distributor.cleanup import ORPHAN_AGE
from tranrepl.distributor.store_mark import MARK
from tranrepl.errors import ConfigurationError

_FOREIGN = r"belongs to distribution database \w+, .* would remove the batches of the other"


def _site(ends: Databases, store: Path | str, name: str = "purchasing") -> Site:
    return Site(ends, store, ["public.item"], SparkHere(), publication=name)


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    """Return a publication with a stored batch."""
    site = _site(databases(), tmp_path / "store")
    site.at_publisher("CREATE TABLE item (id int PRIMARY KEY)")
    site.set_up()
    site.at_publisher("INSERT INTO item VALUES (1)")
    good_run(site)
    return site


@pytest.fixture
def other(databases: DatabasesFactory, tmp_path: Path) -> Site:
    """Return one of another distribution database, which is not set up."""
    site = _site(databases(migrated=False), tmp_path / "another", "other")
    site.at_publisher("CREATE TABLE item (id int PRIMARY KEY)")
    return site


def _moved(site: Site, store: Path | str) -> Site:
    edited = site.publication.model_dump(mode="json", exclude_unset=True)
    edited["distributor"]["store"] = str(store)
    site.publication = site.publication.model_validate(edited)
    return site


def _age(folder: Path) -> None:
    """Make a folder, or what is there, older than what clean-up leaves alone."""
    folder.mkdir(exist_ok=True)
    then = time.time() - (ORPHAN_AGE + timedelta(hours=1)).total_seconds()
    for path in (*folder.iterdir(), folder):
        os.utime(path, (then, then))


def _folders(store: Path) -> list[str]:
    return sorted(it.name for it in store.glob("[!_]*"))


@pytest.mark.parametrize("path", ["{}/store", "{}/store/", "file://{}/store", "{}/link"])
def test_a_store_of_another_distribution_database_is_refused(
    site: Site, other: Site, tmp_path: Path, path: str
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "store")
    store = path.format(tmp_path)
    _moved(other, store)
    mark = (tmp_path / "store" / MARK).read_bytes()
    with pytest.raises(ConfigurationError, match=_FOREIGN) as said:
        other.set_up()
    assert [str(it) for it in check(other.topology).problems] == [str(said.value)]
    assert (tmp_path / "store" / MARK).read_bytes() == mark
    # Where the first one is no more.
    (tmp_path / "store" / MARK).unlink()
    assert f"remove {store.rstrip('/')}/{MARK}" in (said.value.report.remedy or "")
    other.set_up()
    good_run(other)
    for act in (lambda: read_log_into_store(site).raise_error(), lambda: clean_up(site.topology), site.set_up):
        site.at_publisher("INSERT INTO item SELECT max(id) + 1 FROM item")
        with pytest.raises(ConfigurationError, match=_FOREIGN):
            act()
    assert len(_folders(tmp_path / "store")) == 1


def test_a_store_that_is_not_mounted_is_not_written_to(site: Site, tmp_path: Path) -> None:
    store = tmp_path / "store"
    kept = store.rename(tmp_path / "kept")
    store.mkdir()
    site.at_publisher("INSERT INTO item VALUES (2)")
    for act in (lambda: read_log_into_store(site).raise_error(), lambda: clean_up(site.topology)):
        with pytest.raises(ConfigurationError, match="it is not mounted, or it was restored without its file"):
            act()
    assert list(store.iterdir()) == []
    shutil.rmtree(store)
    kept.rename(store)
    good_run(site)
    # Restored without the file.
    (store / MARK).unlink()
    assert site.set_up() == [f"marked store {store} as that of {_where(site)}"]
    site.at_publisher("INSERT INTO item VALUES (3)")
    good_run(site)
    assert site.differences() == []


def _where(site: Site) -> str:
    return f"distribution database {site.databases.distribution.database}"


@pytest.mark.parametrize("store", ["store", pytest.param("store/", marks=pytest.mark.slow)])
def test_publications_of_one_distribution_database_share_a_store(
    site: Site, other: Site, tmp_path: Path, store: str
) -> None:
    other.databases = Databases(other.databases.publisher, other.databases.subscriber, site.databases.distribution)
    other.connections["distribution"] = site.databases.distribution
    _moved(other, f"{tmp_path}/{store}").set_up()
    other.at_publisher("INSERT INTO item VALUES (1)")
    read_log_into_store(other).raise_error()
    # What is in the store, and old.
    orphan = "0" * 32
    for name in (orphan, *_folders(tmp_path / "store")):
        _age(tmp_path / "store" / name)
    for _ in range(2):
        clean_up(site.topology)
        distribution_rows(site, "UPDATE msrepl_replaced_folders SET replaced_time = '2026-01-01' RETURNING folder")
    assert orphan not in _folders(tmp_path / "store")
    good_run(other)
    assert other.differences() == []
    tear_down(plan_teardown(other.topology), lambda _: None)
    assert (tmp_path / "store" / MARK).exists()
    tear_down(plan_teardown(site.topology), lambda _: None)
    assert list((tmp_path / "store").iterdir()) == []


def test_a_store_within_another_ones_is_its_own(site: Site, other: Site, tmp_path: Path) -> None:
    _moved(other, tmp_path / "store" / "inner").set_up()
    other.at_publisher("INSERT INTO item VALUES (1)")
    read_log_into_store(other).raise_error()
    folders = _folders(tmp_path / "store" / "inner")
    for name in folders:
        _age(tmp_path / "store" / "inner" / name)
    clean_up(site.topology)
    assert _folders(tmp_path / "store" / "inner") == folders != []
    tear_down(plan_teardown(site.topology), lambda _: None)
    assert _folders(tmp_path / "store" / "inner") == folders


@pytest.mark.new_sessions
def test_a_copy_of_the_distribution_database_has_its_store(site: Site, postgres: PostgresServer) -> None:
    before = site.databases.distribution.database or ""
    postgres.create_database(f"{before}_restored", template=before)
    restored = postgres.connection(f"{before}_restored", "distribution")
    site.connections["distribution"] = restored
    site.at_publisher("INSERT INTO item VALUES (2)")
    good_run(site)
    clean_up(site.topology)
    site.set_up()
    postgres.drop_database(f"{before}_restored")


def test_check_warns_of_a_store_that_is_not_where_its_commands_were_stored(site: Site, tmp_path: Path) -> None:
    assert not any("lacks the commands" in it for it in check(site.topology).warnings)
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    (said,) = [it for it in check(site.topology).warnings if "lacks the commands" in it]
    assert said.startswith(f"distributor.store: '{tmp_path / 'store'}' lacks the commands that were stored in it: ")
