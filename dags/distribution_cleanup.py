"""One Airflow DAG that cleans up after all publications: `publications/<name>.yaml` beside this file."""

from pathlib import Path

from tranrepl_airflow.dags import DagKind, build_dags

build_dags(Path(__file__).with_name("publications"), DagKind.CLEANUP)
