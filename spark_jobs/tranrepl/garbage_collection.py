"""Python's collector of garbage, which is slow among thousands of articles."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_NEW_OBJECTS = 200_000


@contextmanager
def paused() -> Iterator[None]:
    """Look for no garbage meanwhile: what thousands of settings are made of stays, and looking through it again and
    again takes as long as making it."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def pickled(it: object) -> bytes:
    """Pickle what may hold thousands of articles."""
    with paused():
        return pickle.dumps(it)


def unpickled(data: bytes) -> Any:
    """Read again what `pickled` made, in a worker of Spark, which by itself would look for garbage among it, meanwhile
    and later. It has just collected what there was."""
    with paused():
        read = pickle.loads(data)  # noqa: S301 — our own
        gc.freeze()
        return read


def look_seldom() -> None:
    """Let a process of our own that moves no rows look for garbage seldom: whatever is left of thousands of articles is
    looked through, by Python's own numbers, hundreds of times."""
    gc.set_threshold(_NEW_OBJECTS, 10, 10)
