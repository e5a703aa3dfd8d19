"""The built wheel, installed beside Airflow where there is no checkout: its plugin, its DAG file, a run; and installed
as the page about it says, by pip."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.checkout import CHECKOUT, shell_blocks
from support.databases import Databases
from support.site import execute
from tranrepl import __version__
from tranrepl.connections import Connection, variable_name

pytestmark = [pytest.mark.submit, pytest.mark.timeout(600)]

_FOUND_BY_AIRFLOW = """
import json, warnings
warnings.simplefilter("ignore")
import tranrepl
from airflow import plugins_manager
from airflow.configuration import conf
from airflow.dag_processing.dagbag import DagBag
from airflow.providers_manager import ProvidersManager
loaded, errors = plugins_manager._get_plugins()
sources = {it.name: str(it.source) for it in loaded}
bag = DagBag(conf.get("core", "dags_folder"))
providers = ProvidersManager()
provided = [
    providers.providers["tranrepl"].version,
    [str(it) for it in providers.notification],
    list(providers.extra_links_class_names),
]
print("found", json.dumps([
    tranrepl.__file__, sources.get("tranrepl"), errors, sorted(bag.dags), bag.import_errors, provided
]))
"""
_MIGRATED_AND_RUN = """
from airflow.cli.cli_parser import get_parser
for command in (["db", "migrate"], ["dags", "test", "shop"]):
    arguments = get_parser().parse_args(command)
    arguments.func(arguments)
"""
"""Both `airflow` commands in one process: each takes as long as Airflow's start."""


_AIRFLOW = f"apache-airflow=={version('apache-airflow')}"
_CUSTOMERS = (
    "CREATE TABLE customer (customer_id int PRIMARY KEY, name text, city text)",
    "INSERT INTO customer SELECT n, 'customer ' || n, 'Graz' FROM generate_series(1, 100) n",
)


@dataclass(frozen=True, slots=True)
class Installation:
    """An environment with Airflow and the wheel, and nothing of the checkout."""

    home: Path
    spark: Path | None = None
    """The Spark that is used in place of a pyspark of the environment's own."""

    @property
    def environment(self) -> dict[str, str]:
        strange = ("AIRFLOW_", "_AIRFLOW", "PYTHONPATH", "PYSPARK_", "SPARK_HOME", "VIRTUAL_ENV")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(strange)}
        own = os.environ["PATH"].split(os.pathsep)
        path = [str(self.home / "bin"), *(it for it in own if Path(it) != Path(sys.executable).parent)]
        if self.spark is not None:
            path.insert(1, str(self.spark / "bin"))
        return {
            **inherited,
            "PATH": os.pathsep.join(path),
            "AIRFLOW_HOME": str(self.home / "airflow"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[1]"}),
        }

    def run(self, *arguments: str, connections: Mapping[str, str] | None = None) -> str:
        """Return what a command prints. Raises AssertionError with it where the command fails."""
        finished = subprocess.run(
            [str(self.home / "bin" / arguments[0]), *arguments[1:]],
            env={**self.environment, **(connections or {})},
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert finished.returncode == 0, finished.stdout
        return finished.stdout


@pytest.fixture(scope="module", params=["pyspark", pytest.param("a Spark of its own", marks=pytest.mark.slow)])
def installation(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Install the wheel, as hatchling builds it here, beside this environment's packages but ours; the one time without
    pyspark, where a Spark is on PATH: pyspark has the folders of a distribution."""
    without = ("tranrepl", "pandas") if request.param == "pyspark" else ("tranrepl", "pandas", "pyspark")
    folder = tmp_path_factory.mktemp("wheel")
    home, wheels, spark = folder / "environment", folder / "wheels", folder / "spark"
    shutil.copytree(Path(sysconfig.get_path("purelib"), "pyspark", "bin"), spark / "bin")
    for part in ("jars", "python"):
        (spark / part).symlink_to(Path(sysconfig.get_path("purelib"), "pyspark", part))
    venv.create(home, symlinks=True, with_pip=False)
    (packages,) = home.glob("lib/python*/site-packages")
    for package in Path(sysconfig.get_path("purelib")).iterdir():
        if not any(it in package.name for it in without):
            (packages / package.name).symlink_to(package)
    for script in Path(sys.executable).parent.glob("*spark*") if request.param == "pyspark" else ():
        (home / "bin" / script.name).symlink_to(script)
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(wheels)]
    subprocess.run(build, cwd=CHECKOUT, check=True, capture_output=True)
    (wheel,) = wheels.iterdir()
    # Setup goes on where there is no room for an archive of Spark's classes, which takes longer here than it saves.
    (home / "var").touch()
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "install", "--no-deps", "--no-index"]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True)
    return Installation(home, None if request.param == "pyspark" else spark)


@pytest.fixture(scope="module")
def file(installation: Installation) -> str:
    """Return the publication that `tranrepl init` writes, with its DAG file."""
    dags = installation.home / "airflow" / "dags"
    dags.mkdir(parents=True)
    installation.run("tranrepl", "init", str(dags), "--store", str(installation.home / "store"))
    return str(dags / "publications" / "shop.yaml")


def test_airflow_finds_the_plugin_and_the_dags(installation: Installation, file: str) -> None:
    lines = installation.run("python", "-c", _FOUND_BY_AIRFLOW).splitlines()
    (found,) = (json.loads(it.removeprefix("found ")) for it in lines if it.startswith("found "))
    code, plugin, plugin_errors, dags, dag_errors, (version, notifiers, links) = found
    assert Path(code).is_relative_to(installation.home)
    assert "tranrepl_airflow.plugin:TranreplPlugin" in plugin
    suffixes = ("", "_validate", "_reinitialize", "_setup", "_administer")
    assert set(dags) == {*(f"shop{it}" for it in suffixes), "distribution_cleanup"}
    assert (plugin_errors, dag_errors) == ({}, {})
    assert version == __version__
    assert "tranrepl_airflow.webhook.WebhookNotifier" in notifiers
    assert "tranrepl_airflow.monitor_link.MonitorLink" in links


@pytest.mark.slow
def test_a_new_publication_is_set_up_and_run(
    installation: Installation, file: str, databases: DatabasesFactory
) -> None:
    here = databases(migrated=False)
    connections = here.environment
    for statement in _CUSTOMERS:
        execute(here.publisher, statement)
    installation.run("tranrepl", "check", file, connections=connections)
    installation.run("tranrepl", "setup", file, connections=connections)
    installation.run("tranrepl", "snapshot", file, connections=connections)
    assert len(_customers(here.subscriber)) == 100
    execute(here.publisher, "UPDATE customer SET city = 'Linz' WHERE customer_id <= 10")
    execute(here.publisher, "DELETE FROM customer WHERE customer_id > 90")
    installation.run("python", "-c", _MIGRATED_AND_RUN, connections=connections)
    assert _customers(here.subscriber) == _customers(here.publisher)
    assert len(_customers(here.subscriber)) == 90


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_page_about_installing_is_right(tmp_path: Path, databases: DatabasesFactory) -> None:
    here, shell = databases(migrated=False), _Shell(tmp_path / "home", tmp_path / "checkout")
    for statement in _CUSTOMERS:
        execute(here.publisher, statement)
    shell.prepare()
    for block in shell_blocks(CHECKOUT / "docs" / "how-to" / "install.md"):
        for command in block.commands if block.reason is None else ():
            shell.run(_with_addresses(command, here), here.environment if command.startswith("tranrepl ") else {})
            if command.startswith("tranrepl init"):
                # What Airflow's DAG processor does.
                shell.run("airflow dags reserialize")
    shell.run("airflow dags test shop")
    assert len(_customers(here.subscriber)) == 100


@dataclass(frozen=True, slots=True)
class _Shell:
    """The shell of somebody who has Airflow and our checkout; the virtual environment is their home too."""

    home: Path
    checkout: Path

    def prepare(self) -> None:
        venv.create(self.home, symlinks=True, with_pip=True)
        shutil.copytree(
            CHECKOUT, self.checkout, ignore=shutil.ignore_patterns(".*", "__pycache__", "dist", "tests", "var")
        )
        alone = self._run(f"pip install --no-deps {_AIRFLOW}")
        if alone.returncode and f"No matching distribution found for {_AIRFLOW}" in alone.stdout:
            pytest.skip(f"pip finds no {_AIRFLOW} here, so nothing of the page can be typed")
        self.run(f"pip install --constraint requirements.txt {_AIRFLOW}")
        (self.home / "airflow" / "dags").mkdir(parents=True)
        self.run("airflow db migrate")

    def run(self, command: str, connections: Mapping[str, str] | None = None) -> None:
        """Type a command. Raises AssertionError with what it prints where it fails."""
        finished = self._run(command, connections)
        assert finished.returncode == 0, f"{command}\n{finished.stdout}"

    def _run(self, command: str, connections: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        before, environment = Path.home(), Installation(self.home).environment
        # The page makes it.
        del environment["AIRFLOW_CONN_SPARK_DEFAULT"]
        own = {
            "HOME": str(self.home),
            # What pip has kept, and its settings.
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(before / ".cache")),
            "XDG_CONFIG_HOME": os.environ.get("XDG_CONFIG_HOME", str(before / ".config")),
            # Most modules are never imported.
            "PIP_NO_COMPILE": "1",
        }
        return subprocess.run(
            ["/bin/bash", "-c", command],
            env={**environment, **own, **(connections or {})},
            cwd=self.checkout,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )


def _with_addresses(command: str, here: Databases) -> str:
    """Return a command of the page, with the address of the database that its connection means."""
    added = re.match(r"airflow connections add (\w+) --conn-uri ", command)
    return f"{added[0]}{shlex.quote(here.uris[variable_name(added[1])])}" if added else command


def _customers(connection: Connection) -> list[tuple[object, ...]]:
    return execute(connection, "SELECT * FROM customer ORDER BY customer_id")
