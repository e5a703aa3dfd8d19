"""One Airflow DAG for each publication that begins its subscriptions anew: `publications/<name>.yaml` beside this
file."""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import get_parsing_context

from tranrepl_airflow.reinitialization import build_reinitialization_dag, reinitialization_dag_id

# A worker that parses this file for one task says for which DAG: only that publication is built.
wanted = get_parsing_context().dag_id

for settings in sorted(Path(__file__).with_name("publications").glob("*.yaml")):
    if wanted in (None, reinitialization_dag_id(settings)):
        build_reinitialization_dag(settings)
