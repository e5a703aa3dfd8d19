"""pyarrow in a process of our own: without pandas, with the allocator that suits our work; and what else a worker of
Spark sets up before its task."""

from __future__ import annotations

import ctypes
import gc
import itertools

import pyarrow as pa

from tranrepl.spark.without_pandas import leave_pandas_out

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Options of `mallopt`, in glibc's malloc.h."""
_LARGEST_FROM_HEAP = 32 * 1024 * 1024
"""The most that every glibc takes."""
_KEPT_FREE = 128 * 1024 * 1024
_LOADING_TASKS = 2
"""So many tasks find modules to load: the second one has what the first one has loaded."""
_tasks = itertools.count(1)


def prepare_worker() -> None:
    """Set up memory for what runs in a Python worker of Spark; call it before anything else.

    Batches of some megabytes come and go: the usual allocators return them to the kernel, which clears each page that
    it hands out again. jemalloc for pyarrow, where that has it, and a glibc that keeps what NumPy frees save that time.
    """
    leave_pandas_out()
    _keep_freed_memory()
    _leave_modules_to_the_end()
    if "jemalloc" in pa.supported_memory_backends():
        pa.set_memory_pool(pa.jemalloc_memory_pool())


def prepare_lasting_worker() -> None:
    """Do the same for a lasting task: what earlier tasks of this process have left free, it does not need."""
    prepare_worker()
    gc.collect()
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _leave_modules_to_the_end() -> None:
    """Keep garbage collection from what is loaded: Spark's daemon collects after each task, and would look at all
    modules each time. It has just done so: there is no garbage to keep."""
    if next(_tasks) <= _LOADING_TASKS:
        gc.freeze()


def _keep_freed_memory() -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    # Another C library may have no such call.
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_FROM_HEAP)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_FREE)
