"""Sessions that write at the Publisher while a test's jobs run."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from random import Random

import psycopg

from support.site import Site

_WRITERS = 2


@contextmanager
def concurrent_writers(site: Site, statements: Sequence[str], ids: int) -> Iterator[list[int]]:
    """Let two sessions write, which leave others some of the machine: transactions of some of the statements, which
    overlap and of which some are rolled back. Parameter `a` of a statement is one of the writer's own ids, of which
    there are so many. Yields the transactions so far."""
    done = threading.Event()
    written: list[int] = []

    def write(writer: int) -> None:
        random = Random(writer)
        with psycopg.connect(**site.databases.publisher.libpq_parameters("writer")) as session:  # type: ignore[arg-type]
            while not done.wait(0.002):
                for _ in range(random.randint(1, 4)):
                    own = random.randrange(ids) * _WRITERS + writer
                    session.execute(random.choice(statements).encode(), {"a": own})
                (session.rollback if random.random() < 0.1 else session.commit)()
                written.append(writer)

    with ThreadPoolExecutor(_WRITERS) as executor:
        writers = [executor.submit(write, writer) for writer in range(_WRITERS)]
        try:
            yield written
        finally:
            done.set()
        for it in writers:
            it.result()


@contextmanager
def item_writer(site: Site) -> Iterator[None]:
    """Let a session write to `item`, about twenty transactions a second."""
    done = threading.Event()

    def write() -> None:
        with psycopg.connect(**site.databases.publisher.libpq_parameters("writer"), autocommit=True) as session:  # type: ignore[arg-type]
            number = 0
            while not done.wait(0.1):
                number += 1
                session.execute("INSERT INTO item VALUES (%s, 0, 'new')", [number])
                session.execute("UPDATE item SET xact = xact + 1 WHERE id > %s", [number - 3])

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
