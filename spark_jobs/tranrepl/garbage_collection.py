"""Python's collector of garbage, paused where nothing that is made is garbage."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


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
    """Read again what `pickled` made: Spark, by itself, would look for garbage among it meanwhile."""
    with paused():
        return pickle.loads(data)  # noqa: S301 — our own
