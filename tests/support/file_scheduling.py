"""Which process of a parallel run gets which tests: a file's stay together, as they share servers and sessions."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling


class FileScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """`--dist loadgroup` with the groups of `group`.

    The marker `xdist_group` is of no use: xdist 3.8 hands it over in a test's id, which pytest 9.2 keeps as it was, and
    then every test goes to whichever process is free.
    """

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


def group(nodeid: str) -> str:
    """Return what a test stays together with: its file, or Airflow's tests but its scheduler's, which share a metadata
    database."""
    file = nodeid.partition("::")[0]
    return "airflow" if file.startswith("tests/airflow/") and not file.endswith("/test_scheduler.py") else file
