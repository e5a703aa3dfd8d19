"""The checkout that the tests, the demo and the benchmarks run from: its pages, and the shell examples in them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PAGES = sorted(page for places in ("*", "docs/**/*", "docker/*", "tests/*") for page in CHECKOUT.glob(f"{places}.md"))
"""All that is written for people to read, in Markdown."""


_BLOCK = re.compile(
    r"(?:^ *<!-- not run: (?P<reason>.*?) -->\n\n?)?^ *```sh\n(?P<text>.*?)^ *```", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class ShellBlock:
    """A block of a page."""

    text: str
    reason: str | None
    """Why no test runs it."""

    @property
    def commands(self) -> Sequence[str]:
        """The lines that are not comments, continued ones in one piece."""
        lines = (it.strip() for it in self.text.replace("\\\n", " ").splitlines())
        return [it for it in lines if it and not it.startswith("#")]


def shell_blocks(page: Path) -> list[ShellBlock]:
    """Return the blocks of a page in order."""
    found = _BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [ShellBlock(it["text"], " ".join(it["reason"].split()) if it["reason"] else None) for it in found]
