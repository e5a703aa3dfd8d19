"""`make demo`: a Publisher at work, replicated by Airflow and Spark, and both sides proved equal by their data."""

from __future__ import annotations

import re
import subprocess
import sys

from rich.table import Table

from demo.demo_site import MONITOR, DemoSite, built_site
from demo.publisher_work import purchase, run_tpcb
from support.airflow_home import CommandError
from support.comparison import Comparison, compare
from support.databases import Databases
from support.embedded_postgres import PostgresServer, ServerError
from support.processes import SetprivMissingError
from support.progress import Detail, console, step

_TASK_STARTS = re.compile(r"\[DAG TEST\] starting task_id=(\S+)")


def main() -> int:
    site = DemoSite()
    try:
        with built_site(site) as (server, databases):
            _work_and_replicate(site, server)
            comparisons = _compare(site, databases)
            delivered = _delivered_commands(server)
    except (CommandError, ServerError, SetprivMissingError) as error:
        return _fail(str(error))
    except subprocess.CalledProcessError as error:
        return _fail(f"{error}\n{error.stderr}")
    except KeyboardInterrupt:
        return _fail("interrupted")
    console.print(_report(comparisons, delivered))
    if not all(comparison.equal for comparison in comparisons):
        return _fail("Publisher and Subscriber differ")
    console.print(
        "Publisher and Subscriber hold the same rows. `make airflow` shows the DAGs, and Replication Monitor at "
        f"http://127.0.0.1:8080/{MONITOR}.",
        soft_wrap=True,
    )
    return 0


def _work_and_replicate(site: DemoSite, server: PostgresServer) -> None:
    purchases, pgbench = (publication.publication for publication in site.publications)
    purchase(server, 500, seed=1)
    run_tpcb(server, 4000, seed=1)
    _run_dag(site, server, purchases, 1)
    _run_dag(site, server, pgbench, 1)
    purchase(server, 200, seed=2)
    _run_dag(site, server, purchases, 2)


def _run_dag(site: DemoSite, server: PostgresServer, dag_id: str, number: int) -> None:
    log = site.logs / f"airflow-{dag_id}-{number}.log"
    with step(f"Airflow: run {number} of DAG {dag_id}, its jobs on Spark") as show:
        site.airflow(server).run("dags", "test", dag_id, log=log, on_line=lambda line: _show_task(line, show))


def _show_task(line: str, show: Detail) -> None:
    if started := _TASK_STARTS.search(line):
        show(started[1])


def _compare(site: DemoSite, databases: Databases) -> list[Comparison]:
    with step("Comparing every published value of every row"):
        return [
            compare(article, databases.publisher, databases.subscriber)
            for publication in site.publications
            for article in publication.articles
        ]


def _delivered_commands(server: PostgresServer) -> dict[str, int]:
    """Return the commands delivered by article, of all runs, as the distribution history counts them."""
    with server.connect("distribution") as session:
        rows = session.execute(
            "SELECT article, sum(commands::bigint) FROM msdistribution_history, "
            "json_each_text(commands_by_article) AS counted (article, commands) GROUP BY article"
        ).fetchall()
    return {str(article): int(str(commands)) for article, commands in rows}


def _report(comparisons: list[Comparison], delivered: dict[str, int]) -> Table:
    table = Table(title="Replicated through Airflow and Spark")
    table.add_column("Article", no_wrap=True)
    for title in ("Commands\ndelivered", "Rows at\nPublisher", "Rows at\nSubscriber"):
        table.add_column(title, justify="right")
    table.add_column("Same\ndata")
    for comparison in comparisons:
        article = str(comparison.article.source)
        table.add_row(
            article,
            f"{delivered.get(article, 0):,}",
            f"{comparison.publisher.rows:,}",
            f"{comparison.subscriber.rows:,}",
            "[green]yes[/green]" if comparison.equal else "[red]NO[/red]",
        )
    return table


def _fail(message: str) -> int:
    console.print(f"✗ {message}", style="red", markup=False, soft_wrap=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
