"""What OpenLineage's provider gets of a table, where it is installed: `test_scheduler.py` has a real run's events."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from support.checkout import CHECKOUT
from tranrepl.errors import ErrorKind, ErrorReport
from tranrepl.jobs.results import JobResult, TableProgress
from tranrepl.jobs.validation_report import ArticleValidation, SubscriptionValidation
from tranrepl_airflow.lineage import rows_written

_PROVIDER = CHECKOUT / ".venv" / "openlineage"
_REASON = "ins_cmd calls a custom procedure"
_MADE = """
import json, sys
from openlineage.client.serde import Serde
from tranrepl_airflow.assets import TableAddress
from tranrepl_airflow.lineage import ReplicatedTable, operator_lineage
source, destination = (TableAddress(f"postgres://{it}:5432", ("shop", "public", "item")) for it in ("pub", "sub"))
tables = [ReplicatedTable(source, destination, (("id", "bigint"),), (), it, 0) for it in (None, sys.argv[1])]
for it in operator_lineage(tables).outputs:
    print(json.dumps(Serde.to_dict(it.facets["columnLineage"])["fields"]["id"]["inputFields"][0]["transformations"]))
"""


@pytest.mark.slow_after(1)
@pytest.mark.skipif(not _PROVIDER.exists(), reason="OpenLineage's provider is not there: `make servers` says why")
def test_an_article_that_is_applied_otherwise_is_no_identity() -> None:
    path = os.pathsep.join(map(str, (_PROVIDER, CHECKOUT / "plugins", CHECKOUT / "spark_jobs")))
    done = subprocess.run(
        [sys.executable, "-c", _MADE, _REASON],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    direct = {"type": "DIRECT", "masking": False}
    assert [json.loads(it) for it in done.stdout.splitlines()[-2:]] == [
        [{**direct, "subtype": "IDENTITY"}],
        [{**direct, "subtype": "TRANSFORMATION", "description": _REASON}],
    ]


def test_rows_are_what_was_delivered_copied_and_repaired() -> None:
    compared: Any = {"destination": "x", "publisher_rows": 9, "subscriber_rows": 9}
    validated = (
        ArticleValidation(article="a", repaired=2, **compared),
        ArticleValidation(article="b", repaired=3, **compared),
        ArticleValidation(article="equal", repaired=0, **compared),
        ArticleValidation(article="left", different=1, **compared),
    )
    error = ErrorReport(kind=ErrorKind.DATA, message="it differs", article="left")
    result = JobResult(
        commands_by_article={"a": 1, "none": 0},
        snapshot=(TableProgress(article="c", rows=5, bytes=9, share=1, seconds=1),),
        validation=SubscriptionValidation(xact_seqno="0", articles=validated),
        error=error,
    )
    assert rows_written(result) == {"a": 3, "b": 3, "c": 5}
    assert rows_written(result.model_copy(update={"validation": None})) == {"a": 1, "c": 5, "left": 0}
