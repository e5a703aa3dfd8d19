"""`python -m benchmarks.many_publications`: what a DAG file of hundreds of publications costs Airflow's DAG processor.

Each publication has 20 articles, three subscriptions and five DAGs. A process that has imported the package parses the
file in forked processes, as the DAG processor does, of which the one counts that took the least CPU; then it serializes
what it finds.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from support.airflow_home import AirflowHome
from support.checkout import CHECKOUT

_ARTICLES = [f"public.item_{number}" for number in range(20)]
_MEASURED = """
import gc, os, sys, time
from pathlib import Path
from airflow.serialization.serialized_objects import DagSerialization
from tranrepl_airflow.dags import build_dags
gc.freeze()
least = None
for _ in range(5):
    ours, theirs = os.pipe()
    if os.fork() == 0:
        begun = time.process_time(), time.perf_counter()
        build_dags(Path(sys.argv[1]))
        os.write(theirs, f"{time.process_time() - begun[0]} {time.perf_counter() - begun[1]}".encode())
        os._exit(0)
    os.wait()
    took = [float(it) for it in os.read(ours, 100).split()]
    least = min(least or took, took)
dags = build_dags(Path(sys.argv[1]))
built = time.process_time()
for dag in dags:
    DagSerialization.to_dict(dag)
print(len(dags), *least, time.process_time() - built)
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_publications", description=__doc__)
    parser.add_argument("--publications", type=int, default=300)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tranrepl-bench-") as folder:
        dags, cpu, wall, serialized = _measure(Path(folder), options.publications)
    Console().print(
        f"{options.publications} publications, {dags:.0f} DAGs: parsed in {wall:.1f} s, {1000 * cpu / dags:.1f} ms of "
        f"CPU a DAG, {1000 * cpu / options.publications:.1f} a publication; serialized in {serialized:.1f} s of CPU"
    )


def _measure(folder: Path, publications: int) -> tuple[float, ...]:
    for number in range(publications):
        name = f"shop_{number:03d}"
        (folder / f"{name}.yaml").write_text(_settings(name, folder), encoding="utf-8")
    airflow = AirflowHome(folder / "airflow", folder, CHECKOUT / "plugins", connections={})
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, str(folder)],
        env=airflow.environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=600,
    )
    return tuple(map(float, done.stdout.splitlines()[-1].split()))


def _settings(name: str, folder: Path) -> str:
    articles = "".join(f"  - source: {it}\n" for it in _ARTICLES)
    subscriptions = "".join(f"  - {{name: copy_{it}, connection: subscriber_{it}}}\n" for it in range(3))
    return (
        f"publication: {name}\npublisher: {{connection: publisher}}\nschedule: '*/5 * * * *'\n"
        f"distributor: {{connection: distribution, store: {folder}/store}}\n"
        f"articles:\n{articles}subscriptions:\n{subscriptions}"
    )


if __name__ == "__main__":
    main()
