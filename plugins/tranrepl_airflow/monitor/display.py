"""Numbers and times as a person reads them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from markupsafe import Markup

from tranrepl import printable
from tranrepl.distributor.tables import RunStatus

_FEWEST_POINTS = 3
_COMMAND = re.compile(r"`(tranrepl [^`\n]+)`")
UNKNOWN = "\u2013"


def run_status(status: str) -> str:
    """Return how a run goes or went, in Replication Monitor's words."""
    return RunStatus[status.upper()].in_words


def duration(seconds: float | None) -> str:
    """Return as in "0.4 s", "3 min"; a dash for None."""
    return UNKNOWN if seconds is None else printable.duration(seconds)


def exact_duration(seconds: float) -> str:
    """Return a round value of an axis, as in "0.15 s", "1.5 min": no two have the same label."""
    size, unit = next((it for it in printable.TIMES if seconds >= it[0]), (1, "s"))
    return f"{seconds / size:.3g} {unit}"


def moment(time: datetime) -> str:
    """Return as the terminal writes it, in UTC."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def clock(time: datetime, now: datetime) -> str:
    """Return hour and minute in UTC, with the day where that is another one than now."""
    at, is_today = time.astimezone(UTC), time.astimezone(UTC).date() == now.astimezone(UTC).date()
    return f"{at:%H:%M}" if is_today else f"{at:%Y-%m-%d %H:%M}"


def ago(time: datetime, now: datetime) -> str:
    """Return as in "3 min ago"."""
    return f"{duration(max(0.0, (now - time).total_seconds()))} ago"


def number(value: float | None) -> str:
    """Return as the terminal and messages write it, as in "17,796"; a dash for None."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def rate(value: float | None) -> str:
    """Return a number for each second, with decimals where it is small; a dash for None."""
    return UNKNOWN if value is None else printable.a_second(value)


def size(count: int | None) -> str:
    """Return bytes as in "16.0 MB"; a dash for None."""
    return UNKNOWN if count is None else printable.size(count)


def with_commands(text: str) -> Markup:
    """Return a text whose commands of ours look as such. Backticks in a statement of SQL are its own."""
    parts = enumerate(_COMMAND.split(printable.printable(text)))
    return Markup("").join(Markup("<code>{}</code>").format(it) if at % 2 else it for at, it in parts)


def points(values: Sequence[int | None], width: int, height: int) -> list[str]:
    """Return the polylines of a small chart, as the `points` of SVG: one for each stretch without a gap, none where
    there are too few values to see anything. A value with gaps at both sides is a line of a point's width."""
    if sum(it is not None for it in values) < _FEWEST_POINTS:
        return []
    highest = max((it for it in values if it is not None), default=0) or 1
    step = width / max(1, len(values) - 1)
    lines: list[str] = []
    current: list[str] = []
    for at, value in enumerate([*values, None]):
        if value is not None:
            current.append(f"{at * step:.1f},{height - 1 - value * (height - 2) / highest:.1f}")
        elif current:
            if len(current) == 1:
                x, y = current[0].split(",")
                current.append(f"{float(x) + 1:.1f},{y}")
            lines.append(" ".join(current))
            current = []
    return lines
