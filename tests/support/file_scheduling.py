"""Which process of a parallel run gets which tests: a file's stay together, as they share servers and sessions."""

from __future__ import annotations

import re
from functools import cache

from xdist.scheduler import LoadScopeScheduling

from support.checkout import CHECKOUT

AIRFLOW = "airflow"
BROWSER = "browser"
SPARK = "spark"

_SPARK_ASKED_FOR = re.compile(r"\bspark: (Any|object)\b|\bmark\.spark\b")


class FileScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """`--dist loadgroup` with the groups of `group`.

    The marker `xdist_group` is of no use: xdist 3.8 hands it over in a test's id, which pytest 9.2 keeps as it was, and
    then every test goes to whichever process is free.
    """

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


def group(nodeid: str) -> str:
    """Return what a test stays together with: its file, or what else shares Airflow's metadata database, the
    API server that a browser looks at, or the one Spark session; Airflow's scheduler has its own."""
    file = nodeid.partition("::")[0]
    if file.startswith("tests/airflow/"):
        return file if file.endswith("/test_scheduler.py") else AIRFLOW
    if file.startswith("tests/browser/"):
        return BROWSER
    return SPARK if _asks_for_spark(file) else file


@cache
def _asks_for_spark(file: str) -> bool:
    return _SPARK_ASKED_FOR.search((CHECKOUT / file).read_text(encoding="utf-8")) is not None
