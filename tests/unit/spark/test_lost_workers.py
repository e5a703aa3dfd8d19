"""What Spark says of a Python process that was killed, as Spark 4.3 writes it, and what it says of others."""

from __future__ import annotations

import pytest

from tranrepl.errors import InternalError, TransientError
from tranrepl.spark.spark_submit import failed_job

_CALL = "An error occurred while calling o46.collectToPython.\n: "
_FACTORY = "\n\tat org.apache.spark.api.python.PythonWorkerFactory.create(PythonWorkerFactory.scala:177)"
_STREAM = "\n\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:381)"
_DAEMON = "EOFException occurred while reading the port number from pyspark.daemon's stdout"


@pytest.mark.parametrize(
    "text",
    [
        f"{_CALL}org.apache.spark.SparkException: Python worker exited unexpectedly (crashed).{_FACTORY}",
        f"{_CALL}org.apache.spark.SparkException: {_DAEMON}.{_FACTORY}",
        f"{_CALL}org.apache.spark.SparkException: {_DAEMON} and terminated with code: 137.{_FACTORY}",
        f"{_CALL}java.io.EOFException{_STREAM}{_FACTORY}",
        f"{_CALL}java.io.IOException: Broken pipe{_STREAM}{_STREAM}{_FACTORY}",
        f"{_CALL}java.io.IOException: Stream closed{_STREAM}{_FACTORY}",
        f"{_CALL}java.net.SocketException: Connection reset{_STREAM}{_FACTORY}",
        f"{_CALL}Lost task 0.0: ExecutorLostFailure (executor 0 exited caused by one of the running tasks)",
    ],
)
def test_a_killed_worker_is_transient(text: str) -> None:
    error = failed_job(text, "the job", "that reads", "nothing is left")
    assert isinstance(error, TransientError)
    assert str(error).startswith("the Python worker that reads was killed; nothing is left")


@pytest.mark.parametrize(
    "text",
    [
        f"{_CALL}org.apache.spark.SparkException: \nError from python worker:\n  No module x\n{_DAEMON}.{_FACTORY}",
        f"{_CALL}java.io.EOFException{_STREAM}\n\tat org.apache.spark.sql.execution.X.read(X.scala:1)",
        f"{_CALL}java.io.IOException: No space left on device{_STREAM}",
    ],
)
def test_what_fails_by_itself_is_not(text: str) -> None:
    assert isinstance(failed_job(text, "the job", "that reads", "nothing is left"), InternalError)
