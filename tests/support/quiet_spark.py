"""A Spark session in this process whose JVM says what is wrong, and not what every JVM of Spark's says."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tranrepl.spark.output import is_chatter


@contextmanager
def quiet_start() -> Iterator[None]:
    """Filter the standard error of a JVM that is started meanwhile, as long as it lives."""
    reading, writing = os.pipe()
    ours = os.dup(2)
    os.dup2(writing, 2)
    try:
        threading.Thread(target=_pass_on, args=(reading, ours), daemon=True).start()
        yield
    finally:
        os.dup2(ours, 2)
        os.close(writing)


def _pass_on(reading: int, ours: int) -> None:
    with os.fdopen(reading, "rb") as lines:
        for line in lines:
            if not is_chatter(line.decode(errors="replace")):
                os.write(ours, line)
    os.close(ours)
