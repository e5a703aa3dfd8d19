"""The chart of the docs: changes a second of each workload, as a PNG.

`python -m benchmarks.chart RESULTS.json CHART.png` draws it again.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from benchmarks.results import Phase, Row, read_rows
from benchmarks.workloads import MEMORY
from tranrepl.settings.publication import Apply

_WIDTH, _BAR, _ABOVE, _BELOW = 9.0, 0.15, 0.75, 0.1
"""Inches."""
_BETWEEN_GROUPS = 0.8
"""Bars that would fit between two workloads."""
_THICKNESS = 0.88
"""The part of a bar's place that the bar takes."""
_LABELS, _ROOM_FOR_NUMBERS = 0.2, 1.17
"""Parts of the width: what the workloads' names take, and what the axis is longer than the longest bar."""
_DOTS_PER_INCH = 144
_INK, _FAINT = "#24292f", "#d8dee4"


@dataclass(frozen=True, slots=True)
class _Series:
    label: str
    colour: str
    mode: Apply | None
    """None: built-in replication, which every row has beside it."""
    phase: Phase


_SERIES = (
    _Series("built-in logical replication", "#8c959f", None, Phase.DISTRIBUTION),
    _Series("distribution (bulk)", "#0969da", Apply.AUTO, Phase.DISTRIBUTION),
    _Series("log reader + distribution (bulk)", "#79b8ff", Apply.AUTO, Phase.WHOLE),
    _Series("distribution (serial)", "#d4a72c", Apply.SERIAL, Phase.DISTRIBUTION),
)


@dataclass(frozen=True, slots=True)
class _Bar:
    series: _Series
    per_s: float
    place: float
    """From the top, in bars."""


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw one group of bars for each workload."""
    groups = _groups(rows)
    bars = [bar for group in groups.values() for bar in group]
    height = _BAR * (bars[-1].place + 1 + _BETWEEN_GROUPS)
    figure = Figure(figsize=(_WIDTH, height + _ABOVE + _BELOW), dpi=_DOTS_PER_INCH)
    lowest, part = _BELOW / figure.get_figheight(), height / figure.get_figheight()
    _draw_bars(figure.add_axes((_LABELS, lowest, 0.98 - _LABELS, part)), groups)
    _draw_heading(figure, {bar.series for bar in bars})
    # Without matplotlib's version in it, the same results give the same file.
    figure.savefig(path, format="png", metadata={"Software": None}, pil_kwargs={"optimize": True})


def _draw_bars(axes: Axes, groups: Mapping[str, Sequence[_Bar]]) -> None:
    bars = [bar for group in groups.values() for bar in group]
    axes.set_xlim(0, _ROOM_FOR_NUMBERS * max(bar.per_s for bar in bars))
    axes.set_ylim(bars[-1].place + 0.5 + _BETWEEN_GROUPS / 2, -0.5 - _BETWEEN_GROUPS / 2)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.spines["left"].set_color(_FAINT)
    axes.tick_params(length=0, labelcolor=_INK, labelsize=9)
    axes.set_xticks([])
    axes.set_yticks([(group[0].place + group[-1].place) / 2 for group in groups.values()], list(groups))
    colours = [bar.series.colour for bar in bars]
    drawn = axes.barh([bar.place for bar in bars], [bar.per_s for bar in bars], _THICKNESS, color=colours)
    labels = [_label(bar, group) for group in groups.values() for bar in group]
    axes.bar_label(drawn, labels, padding=4, fontsize=7.5, color=_INK)


def _draw_heading(figure: Figure, used: Collection[_Series]) -> None:
    title = "Changes a second, draining the same backlog (in brackets: times built-in replication)"
    figure.text(0.015, 1 - 0.3 / figure.get_figheight(), title, fontsize=10.5, weight="bold", color=_INK)
    figure.legend(
        handles=[Patch(color=series.colour, label=series.label) for series in _SERIES if series in used],
        loc="upper left",
        bbox_to_anchor=(0.01, 1 - 0.36 / figure.get_figheight()),
        borderaxespad=0,
        ncols=len(_SERIES),
        frameon=False,
        fontsize=8.5,
        handlelength=0.9,
        handleheight=0.9,
        labelcolor=_INK,
    )


def _groups(rows: Sequence[Row]) -> Mapping[str, Sequence[_Bar]]:
    """Return the bars of each workload, the reference first."""
    names = [name for name in dict.fromkeys(row.workload for row in rows) if not name.startswith(MEMORY)]
    groups = {}
    place = 0.0
    for name in names:
        groups[name] = list(_bars([row for row in rows if row.workload == name], place))
        place += len(groups[name]) + _BETWEEN_GROUPS
    return groups


def _bars(rows: Sequence[Row], place: float) -> Iterator[_Bar]:
    for series in _SERIES:
        per_s = _rate(rows, series)
        if per_s is not None:
            yield _Bar(series, per_s, place)
            place += 1


def _rate(rows: Sequence[Row], series: _Series) -> float | None:
    for row in rows:
        if row.phase is series.phase and series.mode in (None, row.mode):
            return row.reference_per_s if series.mode is None else row.ours_per_s
    return None


def _label(bar: _Bar, group: Sequence[_Bar]) -> str:
    """Return a bar's rate, and how many times that of built-in replication it is."""
    ratio = "" if bar.series.mode is None else f"  ({bar.per_s / group[0].per_s:.2f})"
    return f"{bar.per_s:,.0f}{ratio}"


if __name__ == "__main__":
    draw(read_rows(Path(sys.argv[1])), Path(sys.argv[2]))
