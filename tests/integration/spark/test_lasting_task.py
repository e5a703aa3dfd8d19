"""The lasting task of a continuous agent in a real Spark: nothing lasts that has no driver."""

from __future__ import annotations

import copyreg
import socket
import time
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

import pytest
from pyspark import cloudpickle

from tranrepl.errors import TransientError
from tranrepl.jobs.results import JobResult
from tranrepl.spark import lasting_task
from tranrepl.spark.lasting_task import DriverConnection, Ending, LastingTask, TaskServer, Why

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TASK_SECONDS = 20.0


@pytest.mark.parametrize("at_shutdown", [False, True])
def test_a_task_that_never_connects_to_its_driver_is_cancelled(
    at_shutdown: bool, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Waits(LastingTask):
        so_far = JobResult(commands=3)

        def work(self, driver: DriverConnection) -> Ending:
            driver.wait(_TASK_SECONDS)
            return Ending(why=Why.CHANGED, result=self.so_far)

    # Executors have no module of it: it travels by value.
    by_value = cloudpickle.dumps(Waits())  # type: ignore[no-untyped-call]
    monkeypatch.setitem(copyreg.dispatch_table, Waits, lambda _: (cloudpickle.loads, (by_value,)))
    seconds = "_CONNECTS_AT_SHUTDOWN_WITHIN_SECONDS" if at_shutdown else "_CONNECTS_WITHIN_SECONDS"
    monkeypatch.setattr(lasting_task, seconds, 0.5)
    elsewhere, began = socket.create_server(("127.0.0.1", 0)), time.monotonic()
    with elsewhere, ThreadPoolExecutor(1) as executor, TaskServer(spark) as server:
        monkeypatch.setattr(server, "_port", elsewhere.getsockname()[1])
        ending = executor.submit(server.run, Waits())
        while not wait([ending], 0.1).done:
            server.look_after(ends=at_shutdown)
        if at_shutdown:
            assert ending.result() == Ending(why=Why.ASKED, result=Waits.so_far)
        else:
            with pytest.raises(TransientError, match="did not begin"):
                ending.result()
    assert time.monotonic() - began < _TASK_SECONDS
    assert list(spark.sparkContext.statusTracker().getActiveJobsIds()) == []
