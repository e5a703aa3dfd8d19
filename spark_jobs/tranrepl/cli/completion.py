"""Completion of words at a shell: settings files, and what a settings file names.

Nothing but the file is read, and no mistake in it is reported here.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

_MOST_LOOKED_AT = 5_000
_DEEPEST = 3
"""Folders below the one that is named so far."""
_SUFFIXES = (".yaml", ".yml")


def offered_without_verbs() -> list[str] | None:
    """Return what Bash is offered for a file, a subscription or an article; None where it asks for something else, or
    does not ask: Typer answers then, and other shells.

    Bash hands over the line in COMP_WORDS, a word a line, and the place of the unfinished one in COMP_CWORD.
    """
    if os.environ.get("_TRANREPL_COMPLETE") != "complete_bash":
        return None
    words, place = os.environ.get("COMP_WORDS", "").split("\n"), os.environ.get("COMP_CWORD", "")
    if not place.isdecimal() or not 2 <= int(place) <= len(words):
        return None
    before, incomplete = words[: int(place)], "".join(words[int(place) : int(place) + 1])
    complete = _OPTIONS.get(before[-1])
    if any(it in "'\"\\" for it in incomplete):
        return None
    if complete is not None:
        return complete(incomplete)
    if before[-1].startswith("-") or incomplete.startswith("-") or any(it.endswith(_SUFFIXES) for it in before):
        return None
    return complete_file(incomplete)


def complete_file(incomplete: str) -> list[str]:
    """Return the YAML files, in folders below too, whose path begins so."""
    folder, _, _ = incomplete.rpartition("/")
    root = Path(folder or ("/" if incomplete.startswith("/") else ".")).expanduser()
    written = f"{folder}/" if "/" in incomplete else ""
    found = (f"{written}{path}" for path in islice(_below(root), _MOST_LOOKED_AT) if path.endswith(_SUFFIXES))
    return sorted(it for it in found if it.startswith(incomplete))


def _below(root: Path) -> Iterator[str]:
    """Yield the files of folders that are not hidden, relative to the root."""
    for folder, folders, files in os.walk(root):
        place = Path(folder).relative_to(root)
        deep = len(place.parts) >= _DEEPEST
        folders[:] = [] if deep else sorted(it for it in folders if not it.startswith((".", "__")))
        yield from (str(place / it) for it in files)


def complete_subscription(incomplete: str) -> list[str]:
    """Return the file's subscriptions whose names begin so."""
    return _named("subscriptions", "name", incomplete)


def complete_article(incomplete: str) -> list[str]:
    """Return the file's articles whose source tables begin so."""
    return _named("articles", "source", incomplete)


def _named(key: str, name: str, incomplete: str) -> list[str]:
    entries = _document().get(key)
    if not isinstance(entries, list):
        return []
    names = (entry.get(name) if isinstance(entry, dict) else entry for entry in entries)
    return [it for it in names if isinstance(it, str) and it.startswith(incomplete)]


def _document() -> Mapping[str, Any]:
    """Load the settings file that is among the words of the line; return nothing where none can be read."""
    for word in _words():
        with suppress(OSError, UnicodeDecodeError, RuntimeError, yaml.YAMLError):
            document = yaml.safe_load(Path(word).expanduser().read_text(encoding="utf-8"))
            if isinstance(document, dict):
                return document
    return {}


def _words() -> list[str]:
    """Return the words of the line that end as a settings file does. Bash hands the line over under one name, other
    shells under another: what Typer has parsed lacks the file where an option's value is still to come."""
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()
    return [it for it in words if it.endswith(_SUFFIXES)]


_OPTIONS = {
    "-s": complete_subscription,
    "--subscription": complete_subscription,
    "-a": complete_article,
    "--article": complete_article,
}
