"""`make test`: two runs of pytest side by side. Many tests wait for processes that start or die, and not for a core."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

_SECOND = (
    "tests/airflow/test_scheduler.py",
    "tests/integration/compliance",
    "tests/integration/test_chaos.py",
    "tests/integration/test_failpoints.py",
    "tests/integration/test_faults.py",
    "tests/integration/test_outages.py",
    "tests/integration/test_pgbench.py",
    "tests/model",
)
"""What kills, waits and uses MariaDB."""


def main() -> int:
    """Exit status: that of the first run that failed."""
    pytest = [sys.executable, "-m", "pytest"]
    with tempfile.TemporaryFile() as output:
        second = subprocess.Popen(
            [*pytest, *_SECOND, "-o", "cache_dir=.pytest_cache/second"], stdout=output, stderr=subprocess.STDOUT
        )
        try:
            first = subprocess.call([*pytest, *(f"--ignore={path}" for path in _SECOND)])
            status = second.wait()
        finally:
            second.kill()
        output.seek(0)
        sys.stdout.write(f"\nThe second run ({', '.join(Path(it).stem for it in _SECOND)}):\n")
        sys.stdout.write(output.read().decode(errors="replace"))
    return first or status


if __name__ == "__main__":
    sys.exit(main())
