"""What a serialized DAG tells Replication Monitor: of however many articles, and of its own publication alone."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from airflow.conftest import PUBLICATION
from support.monitor_here import monitor_here

# What these import warns of the future of a dependency's dependency.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from airflow.api_fastapi.core_api.security import get_user
    from fastapi.testclient import TestClient

    from tranrepl_airflow.monitor import app as monitor_app

_FOREIGN = """
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG

for name, described in {descriptions!r}.items():
    with DAG(name, schedule=None, tags=["replicate"]) as globals()[name]:
        EmptyOperator(task_id="log_reader", doc_json=described)
"""


def _asked(app: Any, **options: Any) -> TestClient:
    app.dependency_overrides[get_user] = lambda: SimpleAuthManagerUser(username="admin", role="ADMIN")
    return TestClient(app, **options)


def test_a_publication_is_monitored_however_many_articles_it_has(airflow_home: Path, tmp_path: Path) -> None:
    articles = [{"source": f"purchasing.table_with_a_long_name_{number}"} for number in range(500)]
    with monitor_here({**PUBLICATION, "articles": articles}, tmp_path) as app:
        shown = _asked(app).get("/publication/purchasing/actions")
    assert shown.status_code == 200
    assert all(it["source"] in shown.text for it in articles)


def test_a_dag_shows_no_publication_but_its_own(airflow_home: Path, tmp_path: Path) -> None:
    theirs = {"publication": "purchasing", "publisher": "p", "distributor": "distribution", "latency_threshold": None}
    described = {"nosy": json.dumps({**theirs, "max_distretention": 1.0}), "odd": "no JSON", "none": None}
    (tmp_path / "foreign.py").write_text(_FOREIGN.format(descriptions=described), encoding="utf-8")
    with monitor_here(PUBLICATION, tmp_path) as app:
        client = _asked(app)
        assert [it["publication"] for it in client.get("/api/overview").json()] == ["purchasing"]
        assert {client.get(f"/publication/{it}").status_code for it in described} == {404}


def test_every_answer_keeps_other_sites_from_framing_it(
    airflow_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError

    with monitor_here(PUBLICATION, tmp_path) as app:
        client = _asked(app, raise_server_exceptions=False)
        answers = [client.get("/"), client.get("/nothing"), client.get("/api/nothing"), client.get("/static/theme.js")]
        monkeypatch.setattr(monitor_app, "monitored_publications", fail)
        answers += [client.get("/"), client.get("/api/overview")]
    assert [it.status_code for it in answers] == [200, 404, 404, 200, 500, 500]
    for answer in answers:
        policy = answer.headers["Content-Security-Policy"]
        assert all(it in policy for it in ("default-src 'self'", "frame-ancestors 'self'", "form-action 'self'"))
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
