"""The tutorial's commands, and those of the page for MySQL, typed as they stand into a bash with nothing of ours in its
environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from demo.demo_site import DemoSite, write_shell
from support.checkout import CHECKOUT
from support.databases import Databases
from support.embedded_postgres import PostgresServer, embedded_bindir
from support.mariadb import MariaDbServer

pytestmark = pytest.mark.slow

_TUTORIAL = CHECKOUT / "docs" / "tutorial.md"
_FROM_MYSQL = CHECKOUT / "docs" / "how-to" / "from-mysql.md"
_DATABASES = ("shop", "reporting", "distribution")


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The tutorial's shell blocks, in order."""

    environment: str
    own_server: str
    demo_server: str
    steps: tuple[str, ...]


def _blocks() -> _Blocks:
    environment, own_server, demo_server, *steps = _fenced("sh", _TUTORIAL)
    return _Blocks(environment, own_server, demo_server, tuple(steps))


def _fenced(language: str, page: Path) -> list[str]:
    found: list[str] = re.findall(rf"```{language}\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    return found


def _shown() -> list[str]:
    """Return the lines of output that the tutorial shows."""
    (text,) = _fenced("text", _TUTORIAL)
    return text.splitlines()


def _checkout(folder: Path) -> None:
    """Make a checkout whose environment is built."""
    (folder / "dags" / "publications").mkdir(parents=True)
    (folder / ".venv").symlink_to(Path(sys.executable).parent.parent)


def _type(script: str, folder: Path) -> str:
    """Run a script in bash, and return its output. Raises AssertionError for a command that fails."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    process = subprocess.run(
        ["/bin/bash", "--noprofile", "--norc", "-e", "-c", script],
        stdin=subprocess.DEVNULL,
        env={"HOME": str(home), "PATH": f"/usr/bin:/bin:{embedded_bindir()}", "SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=850,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout + process.stderr


def _address(server: PostgresServer) -> str:
    connection = server.connection("postgres")
    return f"postgres://{connection.login}:{connection.password}@{connection.host}:{connection.port}"


@pytest.mark.submit
def test_the_tutorial_works_when_typed(own_server: PostgresServer, tmp_path: Path) -> None:
    _checkout(tmp_path)
    blocks = _blocks()
    made, activate = blocks.environment.splitlines()
    assert made == "make env java"
    own = blocks.own_server.replace("postgres://postgres:secret@127.0.0.1:5432", _address(own_server))
    assert own != blocks.own_server
    shown = _type("\n".join([activate, own, *blocks.steps]), tmp_path)
    assert "shop: 2 articles, 1 subscription: no errors, no warnings" in shown
    assert "no commands" not in shown
    for line in _shown():
        assert line in shown
    assert "Paris" in shown
    with own_server.connect("reporting") as session:
        assert session.execute("SELECT * FROM orders").fetchall() == [(11, 2, 15)]
        assert session.execute("SELECT count(*) FROM pg_class WHERE relname LIKE 'msrepl%'").fetchall() == [(0,)]
    with own_server.connect("shop") as session:
        assert session.execute("SELECT slot_name FROM pg_replication_slots").fetchall() == []
    assert list((tmp_path / "home" / "tranrepl" / "shop").iterdir()) == []
    assert not (tmp_path / "dags" / "publications" / "shop.yaml").exists()


def test_the_demos_server_does_for_the_tutorial(databases: DatabasesFactory, tmp_path: Path) -> None:
    # Up to setup: from there on nothing differs.
    _checkout(tmp_path)
    made = databases(migrated=False)
    site = DemoSite(tmp_path / ".demo", tmp_path)
    site.folder.mkdir()
    (site.dags / "publications").mkdir(parents=True)
    write_shell(site, Databases(made.publisher, made.subscriber, made.distribution))
    blocks = _blocks()
    _, activate = blocks.environment.splitlines()
    shown = _type("\n".join([activate, blocks.demo_server, *blocks.steps[:2]]), tmp_path)
    assert "shop: set up" in shown
    # `make airflow` sees the file, and that it is gone.
    seen = site.dags / "publications" / "shop.yaml"
    assert site.show_new_files() == ["shop.yaml"]
    assert "publication: shop" in seen.read_text(encoding="utf-8")
    assert site.show_new_files() == []
    _type("\n".join([activate, blocks.demo_server, blocks.steps[-1]]), tmp_path)
    assert site.show_new_files() == []
    assert not os.path.lexists(seen)


@pytest.mark.submit
@pytest.mark.parametrize("name", ["mariadb", "mysql-9.7"])
def test_the_page_from_mysql_works_when_typed(
    name: str, publishing: Callable[[str], MariaDbServer], own_server: PostgresServer, tmp_path: Path
) -> None:
    if shutil.which("mysql") is None:
        pytest.skip("there is no client `mysql` (Debian: mariadb-client-core)")
    server = publishing(name)
    administrator = server.connection("mysql")
    _checkout(tmp_path)
    asked, login, at_mysql, at_mariadb, *steps = _fenced("sh", _FROM_MYSQL)
    rights = at_mysql if server.kind == "mysql" else at_mariadb
    script = "\n".join([". .venv/bin/activate", asked, login, rights, *steps])
    for written, ours in {
        "MYSQL_TCP_PORT=3306": f"MYSQL_TCP_PORT={administrator.port}",
        "MYSQL_PWD=secret": f"MYSQL_PWD={administrator.password}",
        "--user=root": f"--user={administrator.login}",
        "postgres://postgres:secret@127.0.0.1:5432": _address(own_server),
    }.items():
        assert written in script
        script = script.replace(written, ours)
    shown = _type(script, tmp_path)
    assert "shop: 2 articles, 1 subscription: no errors" in shown
    assert "equal" in shown
    with own_server.connect("reporting") as session:
        customers = session.execute("SELECT id, name, active, born::text FROM customer ORDER BY id").fetchall()
        orders = session.execute("SELECT id, total::text, state, details::text, changed::text FROM orders").fetchall()
    assert customers == [(1, "Ada", True, "1815-12-10"), (2, "Grace", False, None), (3, "Edgar", True, None)]
    assert orders == [(10, "99.50", "sent", '{"gift": true}', "2026-11-01 12:00:00.25")]
