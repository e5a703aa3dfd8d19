"""Lines that say what setup did: one for all things of a kind at one end, where there are several."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from tranrepl.printable import counted

_NAMED = 3
"""How many things a line names; of more it says the number."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """Things of which setup does many alike. `each`: the line of one; `several`: that of more, with `things`."""

    thing: str
    each: re.Pattern[str]
    several: str


_KINDS = (
    *(
        _Kind(it, re.compile(rf"created {it} (?P<name>.+){of} at (?P<end>.+)"), "created {things} at {end}")
        for it, of in {
            "type": "",
            "table": "",
            "partition": " of table .+",
            "foreign key": " of table .+",
            "procedure": "",
        }.items()
    ),
    _Kind("table", re.compile(r"set REPLICA IDENTITY FULL on (?P<name>.+)"), "set REPLICA IDENTITY FULL on {things}"),
    _Kind(
        "article",
        re.compile(r"article (?P<name>.+) of subscription (?P<end>.+): the next run takes its snapshot"),
        "subscription {end}: the next run takes a snapshot of {things}",
    ),
    _Kind(
        "article",
        re.compile(r"article (?P<name>.+): its new definition is in the Publisher's log, and holds from there on"),
        "the new definitions of {things} are in the Publisher's log, and hold from there on",
    ),
)


@dataclass(slots=True)
class _Line:
    text: str
    names: list[str] = field(default_factory=list)

    def shown(self, kind: _Kind | None, end: str) -> str:
        if kind is None or len(self.names) < 2:
            return self.text
        several = counted(len(self.names), kind.thing)
        if len(self.names) <= _NAMED:
            several = f"{several.split(maxsplit=1)[1]} {', '.join(self.names)}"
        return kind.several.format(things=several, end=end)


def in_few_lines(done: Iterable[str]) -> list[str]:
    """Return the lines of setup with those of a kind and an end as one, at the place of the first. What needs
    attention is of no kind here, and stays a line of its own."""
    lines: dict[tuple[_Kind | None, str], _Line] = {}
    for text in done:
        for kind in _KINDS:
            found = kind.each.fullmatch(text)
            if found is not None:
                end = found.groupdict().get("end", "")
                lines.setdefault((kind, end), _Line(text)).names.append(found["name"])
                break
        else:
            lines.setdefault((None, text), _Line(text))
    return [line.shown(kind, end) for (kind, end), line in lines.items()]
