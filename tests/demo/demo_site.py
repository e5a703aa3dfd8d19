"""What `make demo` and `make airflow` work on: one PostgreSQL server, two publications and an Airflow home in `.demo`.

The checkout itself is not changed: its DAGs and settings are copied, with a store below `.demo`. Other publications'
files are not copied: `make airflow` shows them where they lie.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from demo.publisher_work import create_tables, insert_first_rows
from support.airflow_home import BIN, AirflowHome, metadata_on, run_logged
from support.checkout import CHECKOUT
from support.databases import Databases, create_databases, existing_databases
from support.embedded_postgres import PostgresServer, ServerSettings, embedded_bindir, stop_left_behind
from support.progress import step
from tranrepl.settings.loading import load_publication
from tranrepl.settings.publication import Publication

_PUBLICATIONS = ("purchasing", "pgbench")
_METADATA = "airflow"
MONITOR = "plugin/replication-monitor"
"""Where Replication Monitor is below Airflow's address."""


@dataclass(frozen=True, slots=True)
class DemoSite:
    """The folder's layout."""

    folder: Path = CHECKOUT / ".demo"
    checkout: Path = CHECKOUT

    @property
    def server(self) -> ServerSettings:
        return ServerSettings(self.folder / "postgresql")

    @property
    def dags(self) -> Path:
        return self.folder / "dags"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def shell(self) -> Path:
        """Sets a shell's connections and its Airflow, for `tranrepl`, `airflow` and `psql "$PUBLISHER"`."""
        return self.folder / "connections.sh"

    @property
    def complete(self) -> Path:
        """Exists once everything is set up and the first rows are there."""
        return self.folder / "complete"

    @property
    def files(self) -> list[Path]:
        """The publications' settings."""
        return [self.dags / "publications" / f"{name}.yaml" for name in _PUBLICATIONS]

    @property
    def publications(self) -> list[Publication]:
        return [load_publication(file) for file in self.files]

    def show_new_files(self) -> list[str]:
        """Let the demo's Airflow see the files that are in the checkout's `dags/publications` now, beside the demo's
        own: the names of those that it did not see before."""
        seen = self.dags / "publications"
        for link in seen.glob("*.yaml"):
            if link.is_symlink() and not link.exists():
                link.unlink()
        files = sorted((self.checkout / "dags" / "publications").glob("*.yaml"))
        new = [it for it in files if not (seen / it.name).exists()]
        for file in new:
            (seen / file.name).symlink_to(file)
        return [file.name for file in new]

    def airflow(
        self, server: PostgresServer, port: int = 8080, connections: Mapping[str, str] | None = None
    ) -> AirflowHome:
        """Return an Airflow whose own tables are in the demo's server, beside the publications' three databases. It
        also has the other `connections`; the demo's take precedence.
        """
        known = {**(connections or {}), **existing_databases(server).environment}
        settings = metadata_on(server.connection(_METADATA))
        return AirflowHome(self.folder / "airflow", self.dags, CHECKOUT / "plugins", known, port, settings)

    def is_known_dag(self, server: PostgresServer, dag_id: str) -> bool:
        """Return whether Airflow has parsed a DAG and can run it."""
        with server.connect(_METADATA) as session:
            return (
                session.execute("SELECT FROM dag WHERE dag_id = %s AND NOT is_stale", [dag_id]).fetchone() is not None
            )

    def run_tranrepl(self, verb: str, file: Path, server: PostgresServer) -> None:
        log = self.logs / f"{file.stem}-{verb}.log"
        run_logged([str(BIN / "tranrepl"), verb, str(file)], self.airflow(server).environment, log)


@contextmanager
def built_site(site: DemoSite) -> Iterator[tuple[PostgresServer, Databases]]:
    """Make a new site, whatever an earlier one has left: set up, with rows to replicate.

    Its server runs as long as the context.
    """
    stop_left_behind(site.server)
    shutil.rmtree(site.folder, ignore_errors=True)
    site.folder.mkdir()
    with step("PostgreSQL: a new cluster on loopback"):
        server = PostgresServer(site.server).start()
    with server:
        with step("Publisher, Subscriber and distribution database; tables of purchasing and of pgbench"):
            databases = create_databases(server)
            create_tables(server)
            _copy_dags(site)
        _make_airflow(site, server)
        for file in site.files:
            with step(f"tranrepl check and setup: publication {file.stem}"):
                site.run_tranrepl("check", file, server)
                site.run_tranrepl("setup", file, server)
        insert_first_rows(server)
        for file in site.files:
            with step(f"tranrepl snapshot: the first rows of publication {file.stem}"):
                site.run_tranrepl("snapshot", file, server)
        site.complete.touch()
        yield server, databases


@contextmanager
def opened_site(site: DemoSite) -> Iterator[tuple[PostgresServer, Databases]]:
    """Open the site as an earlier command has left it, or make a new one."""
    if not site.complete.exists():
        with built_site(site) as running:
            yield running
        return
    with step("PostgreSQL: the demo's cluster"):
        server = PostgresServer(site.server).start()
    with server:
        if not server.has_database(_METADATA):
            _make_airflow(site, server)
        write_shell(site, existing_databases(server), site.airflow(server).shell_variables())
        yield server, existing_databases(server)


def _make_airflow(site: DemoSite, server: PostgresServer) -> None:
    with step("Airflow: its own database"):
        server.create_database(_METADATA)
        write_shell(site, existing_databases(server), site.airflow(server).shell_variables())
        site.airflow(server).run("db", "migrate", log=site.logs / "airflow-db-migrate.log")


def write_shell(site: DemoSite, databases: Databases, variables: Mapping[str, str] | None = None) -> None:
    """Write what another shell reads: `variables`, the connections as URIs that psql takes too, `tranrepl` and
    `airflow`, and psql, where the machine has none."""
    site.shell.touch(mode=0o600)
    uris = databases.uris
    short = {name.removeprefix("AIRFLOW_CONN_"): uri for name, uri in uris.items()}
    exported = {**(variables or {}), **uris, **short}
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in exported.items()]
    lines.append(f'export PATH={shlex.quote(str(BIN))}:"$PATH"\n')
    lines.append(f'command -v psql >/dev/null || export PATH="$PATH":{shlex.quote(str(embedded_bindir()))}\n')
    site.shell.write_text("".join(lines), encoding="utf-8")


def _copy_dags(site: DemoSite) -> None:
    """Copy the checkout's DAG folder, with the demo's publications and no others so far."""
    shutil.copytree(CHECKOUT / "dags", site.dags, ignore=shutil.ignore_patterns("__pycache__", "publications"))
    (site.dags / "publications").mkdir()
    for file in site.files:
        source = CHECKOUT / "dags" / "publications" / file.name
        store = load_publication(source).distributor.store
        text = source.read_text(encoding="utf-8").replace(store, str(site.folder / "store" / file.stem))
        file.write_text(text, encoding="utf-8")
