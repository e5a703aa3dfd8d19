"""One Airflow DAG that cleans up after all publications: `publications/<name>.yaml` beside this file."""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import get_parsing_context

from tranrepl_airflow.dag_builder import CLEANUP_DAG_ID, build_cleanup_dag

if get_parsing_context().dag_id in (None, CLEANUP_DAG_ID):
    build_cleanup_dag(sorted(Path(__file__).with_name("publications").glob("*.yaml")))
