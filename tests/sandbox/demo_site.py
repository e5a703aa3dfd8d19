"""What `make demo` and `make airflow` work on: one PostgreSQL server, two publications and an Airflow home in `.demo`.

The checkout itself is not changed: its DAGs and settings are copied, with a store below `.demo`.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sandbox.airflow_home import BIN, AirflowHome, metadata_on, run_logged
from sandbox.databases import Databases, create_databases, existing_databases
from sandbox.embedded_postgres import PostgresServer, ServerSettings, stop_left_behind
from sandbox.progress import step
from sandbox.publisher_work import create_tables, insert_first_rows
from tranrepl.settings import Publication
from tranrepl.settings_file import load_publication

CHECKOUT = Path(__file__).resolve().parents[2]
_PUBLICATIONS = ("purchasing", "pgbench")
_METADATA = "airflow"


@dataclass(frozen=True, slots=True)
class DemoSite:
    """The folder's layout."""

    folder: Path = CHECKOUT / ".demo"

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

    def airflow(self, server: PostgresServer, port: int = 8080) -> AirflowHome:
        """Its own tables are in a database of the demo's server, beside the publications' three."""
        connections = existing_databases(server).environment
        settings = metadata_on(server.connection(_METADATA))
        return AirflowHome(self.folder / "airflow", self.dags, CHECKOUT / "plugins", connections, port, settings)

    def run_tranrepl(self, verb: str, file: Path, server: PostgresServer) -> None:
        log = self.logs / f"{file.stem}-{verb}.log"
        run_logged([str(BIN / "tranrepl"), verb, str(file)], self.airflow(server).environment, log)


@contextmanager
def built_site(site: DemoSite) -> Iterator[tuple[PostgresServer, Databases]]:
    """A new site, whatever an earlier one has left: set up, with rows to replicate.

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
    """The site as an earlier command has left it, or a new one."""
    if not site.complete.exists():
        with built_site(site) as running:
            yield running
        return
    with step("PostgreSQL: the demo's cluster"):
        server = PostgresServer(site.server).start()
    with server:
        if not server.has_database(_METADATA):
            _make_airflow(site, server)
        _write_shell(site, server)
        yield server, existing_databases(server)


def _make_airflow(site: DemoSite, server: PostgresServer) -> None:
    with step("Airflow: its own database"):
        server.create_database(_METADATA)
        _write_shell(site, server)
        site.airflow(server).run("db", "migrate", log=site.logs / "airflow-db-migrate.log")


def _write_shell(site: DemoSite, server: PostgresServer) -> None:
    site.shell.touch(mode=0o600)
    variables = site.airflow(server).shell_variables()
    for it in (server.connection("publisher"), server.connection("subscriber")):
        # For psql. The demo's passwords have no character that means something in a URI.
        variables[it.connection_id.upper()] = f"postgresql://{it.login}:{it.password}@{it.host}:{it.port}/{it.database}"
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()]
    path = f'export PATH={shlex.quote(str(BIN))}:"$PATH":{shlex.quote(str(server.settings.bindir))}\n'
    site.shell.write_text("".join([*lines, path]), encoding="utf-8")


def _copy_dags(site: DemoSite) -> None:
    """The checkout's DAG folder, with the demo's publications and no others."""
    shutil.copytree(CHECKOUT / "dags", site.dags, ignore=shutil.ignore_patterns("__pycache__", "publications"))
    (site.dags / "publications").mkdir()
    for file in site.files:
        source = CHECKOUT / "dags" / "publications" / file.name
        store = load_publication(source).distributor.store
        text = source.read_text(encoding="utf-8").replace(store, str(site.folder / "store" / file.stem))
        file.write_text(text, encoding="utf-8")
