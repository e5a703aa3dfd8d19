"""One Airflow DAG for each publication of what is done to it by hand: `publications/<name>.yaml` beside this file."""

from pathlib import Path

from tranrepl_airflow.dags import DagKind, build_dags

build_dags(Path(__file__).with_name("publications"), DagKind.ADMINISTRATION)
