"""Pages of the reference that are made from the code are those of today's code."""

from __future__ import annotations

from pathlib import Path

import pytest

from reference_pages.pages import PAGES, PARTS, with_generated_parts


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_generated_parts_are_current(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert with_generated_parts(text) == text, "run `make docs`"


def test_every_generated_part_stands_on_a_page() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert [name for name in PARTS if f"<!-- generated: {name} -->" not in text] == []


def test_no_key_verb_or_column_is_without_a_description() -> None:
    for name, part in PARTS.items():
        assert "None" not in part().replace("`None`", ""), name
