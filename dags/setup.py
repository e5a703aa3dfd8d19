"""One Airflow DAG for each publication that checks it and sets it up: `publications/<name>.yaml` beside this file."""

from pathlib import Path

from tranrepl_airflow.dags import DagKind, build_dags

build_dags(Path(__file__).with_name("publications"), DagKind.SETUP)
