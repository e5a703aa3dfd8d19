"""`tranrepl init`: the first files of a site, a DAG file for Airflow and a publication to be filled in."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import yaml

from tranrepl.errors import ConfigurationError

DAG_FILE = "replication.py"
PUBLICATIONS = "publications"

_DAG_TEXT = '''"""The DAGs of the publications beside this file: `publications/<name>.yaml`."""

from pathlib import Path

from tranrepl_airflow.dags import build_dags

build_dags(Path(__file__).with_name("publications"))
'''

_PUBLICATION_TEXT = """\
# A publication: the tables of one Publisher that its Subscribers get, and how. `tranrepl check FILE` says what is wrong
# with this file, `tranrepl schema` prints every setting.

# The file's name, and the DAG's.
publication: {name}

# Airflow connection ids. A shell reads the same connections from AIRFLOW_CONN_PUBLISHER and so on, as in
# AIRFLOW_CONN_PUBLISHER=postgres://user:password@host:5432/database
publisher:
  connection: publisher
distributor:
  # A PostgreSQL database, which `tranrepl setup FILE` fills with tables of its own.
  connection: distribution
  # Where commands wait for their Subscribers: a path that every Spark worker mounts, or s3://…, gs://…, az://…
  store: {store}

# When it runs: cron, UTC. Leave it out for manual runs only.
schedule: "*/5 * * * *"

# Tables with a primary key, each as schema.table.
articles:
  - source: public.customer
  # Part of a table, and statements instead of procedures:
  # - source: public.orders
  #   destination: sales.orders
  #   columns: [order_id, customer_id, total]
  #   filter: total > 0
  #   ins_cmd: SQL
  #   upd_cmd: SQL
  #   del_cmd: SQL

subscriptions:
  - name: reporting
    connection: subscriber
    # The Publisher's rows come first, by a snapshot. Where they are there already: replication_support_only.
    sync_type: automatic
"""


def dag_file(folder: Path) -> Path:
    """Return the path of the DAG file in Airflow's folder of DAGs."""
    return folder / DAG_FILE


def publication_file(folder: Path, name: str) -> Path:
    """Return the path of a publication in Airflow's folder of DAGs."""
    return folder / PUBLICATIONS / f"{name}.yaml"


def write_first_files(folder: Path, name: str, store: str, say: Callable[[str], None]) -> Path:
    """Write the DAG file and the publication, and return the latter's path. A DAG file that says the same is left.

    Raises ConfigurationError, with nothing written, where a file is there that would be overwritten, where the folder
    is not there, or for a name that no publication can have.
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", name):
        raise ConfigurationError(
            f"--publication: {name!r} is no name of a publication",
            remedy="allowed: letters, digits, _ and -, at most 40",
        )
    if not folder.is_dir():
        raise ConfigurationError(
            f"there is no folder {folder}",
            remedy="Airflow's folder of DAGs, which `airflow config get-value core dags_folder` prints; or mkdir it",
        )
    dags, publication = dag_file(folder), publication_file(folder, name)
    has_dags = _holds(dags, _DAG_TEXT)
    if publication.exists():
        raise _taken(publication, "--publication names another one")
    if dags.exists() and not has_dags:
        raise _taken(dags, "move it, or name another folder")
    if not has_dags:
        dags.write_text(_DAG_TEXT, encoding="utf-8")
        say(f"wrote {dags}")
    publication.parent.mkdir(exist_ok=True)
    publication.write_text(_PUBLICATION_TEXT.format(name=_scalar(name), store=_scalar(store)), encoding="utf-8")
    say(f"wrote {publication}")
    return publication


def _scalar(text: str) -> str:
    """Return a text as YAML takes it for one."""
    return yaml.safe_dump(text, width=len(text) + 10, allow_unicode=True).splitlines()[0]


def _holds(path: Path, text: str) -> bool:
    return path.is_file() and path.read_bytes() == text.encode()


def _taken(path: Path, remedy: str) -> ConfigurationError:
    return ConfigurationError(f"{path} is there already; nothing was written", remedy=remedy)
