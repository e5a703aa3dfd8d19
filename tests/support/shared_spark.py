"""A spark-submit that starts no JVM: it hands its job to a Spark session that is already there.

Where many jobs run one after another, starting Spark for each is what takes the time.
"""

from __future__ import annotations

import json
import os
import socketserver
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from tranrepl.connections import from_environment
from tranrepl.distribution import job as distribution
from tranrepl.errors import ReplicationError
from tranrepl.jobs.requests import DistributionRequest, LogReaderRequest, SnapshotRequest
from tranrepl.jobs.results import JobResult
from tranrepl.log_reader import job as log_reader
from tranrepl.snapshot import job as snapshot
from tranrepl.spark.spark_submit import write_private

_SUBMIT = """#!{python} -IS
import json, os, socket, sys
connection = socket.create_connection(("127.0.0.1", {port}))
stream = connection.makefile("rw")
environment = {{name: value for name, value in os.environ.items() if name.startswith("AIRFLOW_CONN_")}}
stream.write(json.dumps({{"argv": sys.argv, "environment": environment}}) + "\\n")
stream.flush()
sys.exit(int(stream.readline() or 1))
"""


@contextmanager
def shared_spark(spark: Any, folder: Path) -> Iterator[str]:
    """Yield a PATH that has the spark-submit first. Jobs that end by themselves run one at a time: they set the
    session's configuration."""
    one_at_a_time = threading.Lock()

    class Submission(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            submission = json.loads(self.rfile.readline())
            # A continuous job has a session of its own, and would keep all others waiting.
            stays = _stays(submission["argv"])
            with nullcontext() if stays else one_at_a_time:
                session = spark.newSession() if stays else spark
                status = _run(session, submission["argv"], submission["environment"])
            self.wfile.write(f"{status}\n".encode())

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Submission) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
        folder.mkdir()
        binary = folder / "spark-submit"
        binary.write_text(_SUBMIT.format(python=sys.executable, port=server.server_address[1]), encoding="utf-8")
        binary.chmod(0o755)
        yield f"{folder}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        server.shutdown()


def _stays(argv: list[str]) -> bool:
    request = json.loads(Path(argv[argv.index("--request") + 1]).read_text(encoding="utf-8"))
    return request.get("continuous_until") is not None


def _run(spark: Any, argv: list[str], environment: Mapping[str, str]) -> int:
    request, result_path = (Path(argv[argv.index(it) + 1]) for it in ("--request", "--result"))
    result = _result(spark, request.read_text(encoding="utf-8"), environment)
    write_private(result_path, result.model_dump_json())
    return 1 if result.error else 0


def _result(spark: Any, text: str, environment: Mapping[str, str]) -> JobResult:
    try:
        if json.loads(text)["job"] == "log_reader":
            reading = LogReaderRequest.model_validate_json(text)
            found = {name: from_environment(name, environment) for name in reading.connection_ids()}
            return log_reader.run(spark, reading, found)
        if json.loads(text)["job"] == "snapshot":
            taking = SnapshotRequest.model_validate_json(text)
            found = {name: from_environment(name, environment) for name in taking.connection_ids()}
            return snapshot.run(spark, taking, found)
        delivery = DistributionRequest.model_validate_json(text)
        found = {name: from_environment(name, environment) for name in delivery.connection_ids()}
        return distribution.run(spark, delivery, found)
    except ReplicationError as error:
        return JobResult(error=error.report)
