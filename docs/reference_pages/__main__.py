"""`make docs`: write the generated parts of the reference."""

from __future__ import annotations

from reference_pages.pages import PAGES, with_generated_parts


def main() -> None:
    """Write every page that changes, and name it."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        current = with_generated_parts(text)
        if current != text:
            page.write_text(current, encoding="utf-8")
            print(page.name)


if __name__ == "__main__":
    main()
