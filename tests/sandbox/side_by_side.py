"""`make test`: four runs of pytest side by side. Many tests wait for processes that start or die, not for a core."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

_BESIDE = (
    # What kills, waits and uses MariaDB.
    (
        "tests/airflow/test_scheduler.py",
        "tests/integration/compliance",
        "tests/integration/test_chaos.py",
        "tests/integration/test_failpoints.py",
        "tests/integration/test_outages.py",
        "tests/integration/test_pgbench.py",
        "tests/model",
    ),
    # What reads whole tables, and what starts Spark by spark-submit.
    (
        "tests/integration/test_bulk.py",
        "tests/integration/test_class_archive.py",
        "tests/integration/test_cluster.py",
        "tests/integration/test_exported_snapshot.py",
        "tests/integration/test_faults.py",
        "tests/integration/test_propagation.py",
        "tests/integration/test_shell.py",
        "tests/integration/test_snapshot.py",
        "tests/integration/test_snapshot_hand_over.py",
        "tests/integration/test_streams.py",
        "tests/integration/test_validation.py",
    ),
    # What restores and promotes servers, changes tables and holds large values.
    (
        "tests/integration/test_beginning_anew.py",
        "tests/integration/test_changed_tables.py",
        "tests/integration/test_encodings.py",
        "tests/integration/test_identity_updates.py",
        "tests/integration/test_large_values.py",
        "tests/integration/test_log_continuity.py",
        "tests/integration/test_remedies.py",
        "tests/integration/test_replication_slots.py",
        "tests/integration/test_row_filters.py",
        "tests/integration/test_self_references.py",
        "tests/integration/test_session_settings.py",
        "tests/integration/test_standby_slots.py",
        "tests/integration/test_two_publishers.py",
        "tests/integration/test_wide_tables.py",
    ),
)


def main() -> int:
    """Exit status: that of the first run that failed. The first one is seen as it goes, the others when they end."""
    pytest = [sys.executable, "-m", "pytest"]
    # Tests start Python some thousand times, which would compile the checkout each time.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with ExitStack() as stack:
        beside = []
        for number, paths in enumerate(_BESIDE, start=2):
            output = stack.enter_context(tempfile.TemporaryFile())
            cache = f"cache_dir=.pytest_cache/{number}"
            run = subprocess.Popen([*pytest, *paths, "-o", cache], stdout=output, stderr=subprocess.STDOUT)
            stack.callback(run.kill)
            beside.append((run, paths, output))
        statuses = [subprocess.call([*pytest, *(f"--ignore={path}" for paths in _BESIDE for path in paths)])]
        for run, paths, output in beside:
            statuses.append(run.wait())
            output.seek(0)
            sys.stdout.write(f"\nBeside it, {', '.join(Path(it).stem for it in paths)}:\n")
            sys.stdout.write(output.read().decode(errors="replace"))
    return next((status for status in statuses if status), 0)


if __name__ == "__main__":
    sys.exit(main())
