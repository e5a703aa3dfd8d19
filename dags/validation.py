"""One Airflow DAG for each publication that compares both ends: `publications/<name>.yaml` beside this file."""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import get_parsing_context

from tranrepl_airflow.validation import build_validation_dag, validation_dag_id

# A worker that parses this file for one task says for which DAG: only that publication is built.
wanted = get_parsing_context().dag_id

for settings in sorted(Path(__file__).with_name("publications").glob("*.yaml")):
    if wanted in (None, validation_dag_id(settings)):
        build_validation_dag(settings)
