"""Pages can be read: every link leads somewhere, and lines are short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.checkout import CHECKOUT, PAGES

_BLOCK = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
_CODE = re.compile(rf"{_BLOCK.pattern}|`[^`\n]*`", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def _anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as those make them who show pages of a repository."""
    text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    broken = []
    for link in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_lines_of_a_page_are_short(page: Path) -> None:
    # But in commands, which are pasted whole.
    lines = _BLOCK.sub("", page.read_text(encoding="utf-8")).splitlines()
    assert [line for line in lines if len(line) > 120] == []


def test_every_page_is_reached_from_the_front_page() -> None:
    linked = set()
    for page in PAGES:
        for link in _LINK.findall(page.read_text(encoding="utf-8")):
            if not re.match(r"\w+:", link):
                linked.add((page.parent / link.partition("#")[0]).resolve())
    assert [page for page in PAGES if page not in linked and page.name != "README.md"] == []


def test_the_front_page_is_short() -> None:
    assert len((CHECKOUT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_architecture_names_modules_that_are_there() -> None:
    text = (CHECKOUT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`([a-z_/]+\.(?:py|sql))`", text)
    assert len(named) > 15
    assert [it for it in named if not (CHECKOUT / "spark_jobs" / "tranrepl" / it).exists()] == []


def test_a_how_to_is_short() -> None:
    pages = (CHECKOUT / "docs" / "how-to").glob("*.md")
    lines = {it.name: len(it.read_text(encoding="utf-8").splitlines()) for it in pages}
    assert {name: count for name, count in lines.items() if count > 100} == {}
