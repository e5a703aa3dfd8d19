"""Python's collector of garbage, paused where nothing that is made is garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
