"""One Airflow DAG for each publication: `publications/<name>.yaml` beside this file."""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import get_parsing_context

from tranrepl_airflow.dag_builder import build_dag, dag_id_of

# A worker that parses this file for one task says for which DAG: only that publication is built.
wanted = get_parsing_context().dag_id

for settings in sorted(Path(__file__).with_name("publications").glob("*.yaml")):
    if wanted in (None, dag_id_of(settings)):
        build_dag(settings)
