"""Our processes set up pyarrow without loading pandas, and workers keep their memory."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tranrepl.distribution import stored_range, streams
from tranrepl.log_reader import storing

_MAKES_ARRAYS = """
import sys
# What a worker loads before it comes to its task.
import tranrepl.distribution.following, tranrepl.distribution.streams, tranrepl.log_reader.following
import tranrepl.log_reader.storing, tranrepl.publisher.postgres.log_stream, tranrepl.snapshot.job
assert "pandas" not in sys.modules
from tranrepl.spark.without_pandas import leave_pandas_out
leave_pandas_out()
import numpy as np, pyarrow as pa, pyarrow.compute as pc, pyarrow.dataset, pyarrow.parquet
import tranrepl.cli.verbs, tranrepl.distribution.stored_range, tranrepl.log_reader.storing
numbers = pa.array(np.arange(3))
assert pc.greater(numbers, 1).to_numpy(zero_copy_only=False).tolist() == [False, False, True]
"""


def test_arrays_are_made_without_pandas(tmp_path: Path) -> None:
    (tmp_path / "pandas.py").write_text("raise AssertionError('pandas is loaded')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", _MAKES_ARRAYS], env=environment, check=True)


_FREES_AND_ALLOCATES = """
import resource
from tranrepl.spark.pyarrow_setup import prepare_worker
prepare_worker()
import numpy as np
faults = []
for _ in range(10):
    arrays = [np.ones(24 * 1024 * 1024, dtype=np.uint8) for _ in range(3)]
    del arrays
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
assert faults[-1] - faults[0] < 1000, faults
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of another C library nothing is asked")
def test_a_worker_keeps_the_pages_that_its_arrays_leave() -> None:
    subprocess.run([sys.executable, "-c", _FREES_AND_ALLOCATES], check=True)


_PREPARES_THRICE = """
import gc
from tranrepl.spark.pyarrow_setup import prepare_worker
prepare_worker()
import tranrepl.distribution.delivery
left = len(gc.get_objects())
prepare_worker()
assert len(gc.get_objects()) < left / 10, (len(gc.get_objects()), left)
frozen, kept = gc.get_freeze_count(), [[] for _ in range(1000)]
prepare_worker()
assert gc.get_freeze_count() == frozen
"""


def test_a_worker_collects_no_garbage_among_its_modules() -> None:
    subprocess.run([sys.executable, "-c", _PREPARES_THRICE], check=True)


class _PreparedError(Exception):
    pass


def _nothing(*_: object) -> Any:
    raise AssertionError("a worker began before it was prepared")


_ENTRIES: dict[str, tuple[Any, Callable[[], Any]]] = {
    "log into a file": (storing, lambda: storing._written([], _nothing, _nothing, iter(()))),  # type: ignore[arg-type]
    "stored commands": (stored_range, lambda: list(stored_range.deliver_stored(_nothing, _nothing, iter(())))),  # type: ignore[arg-type]
    "stored commands, mapped": (stored_range, lambda: stored_range.map_stored(_nothing, _nothing, iter(()))),  # type: ignore[arg-type]
    "a stream": (streams, lambda: list(streams.StreamDelivery(_nothing, 1, _nothing)(iter(())))),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("entry", _ENTRIES)
def test_a_worker_is_prepared_before_anything_else(entry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare() -> None:
        raise _PreparedError

    module, begin = _ENTRIES[entry]
    monkeypatch.setattr(module, "prepare_worker", prepare)
    with pytest.raises(_PreparedError):
        begin()
