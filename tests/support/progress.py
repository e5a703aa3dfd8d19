"""What a person sees while the demo works: the step that runs, and each step that is done with its time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

console = Console(highlight=False)


Detail = Callable[[str], None]
"""Says what the step that runs is about just now."""


@contextmanager
def step(title: str) -> Iterator[Detail]:
    """Show a spinner with the time that has passed, then a line with the time it took."""
    started = time.monotonic()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(title)
        yield lambda detail: progress.update(task, description=f"{title}: {detail}")
    _done(title, started)


def counted_step(title: str, total: int, work: Iterable[None]) -> None:
    """Do a known number of pieces of work behind a bar."""
    started = time.monotonic()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        for _ in progress.track(work, total=total, description=title):
            pass
    _done(title, started)


def _done(title: str, started: float) -> None:
    console.print(f"[green]✓[/green] {title} [dim]{time.monotonic() - started:.1f} s[/dim]", soft_wrap=True)
