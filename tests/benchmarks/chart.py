"""The chart of the docs: changes a second of each workload, as a PNG that Spark's own JVM draws.

`python -m benchmarks.chart RESULTS.json CHART.png` draws it anew.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.results import Phase, Row, read_rows
from benchmarks.workloads import MEMORY
from sandbox.quiet_spark import quiet_start
from tranrepl.settings.publication import Apply
from tranrepl.spark.output import submission_variables

_SCALE = 2
"""Pixels for one unit of the layout."""
_WIDTH, _LABELS, _RIGHT = 900, 190, 110
_TOP, _BOTTOM = 66, 16
_BAR, _BETWEEN_BARS, _BETWEEN_GROUPS = 13, 2, 14
_INK, _FAINT, _PAPER = 0x24292F, 0xD8DEE4, 0xFFFFFF
_END_SECONDS = 60
_HEADLESS = "-Djava.awt.headless=true --add-opens=java.desktop/sun.java2d=ALL-UNNAMED"


@dataclass(frozen=True, slots=True)
class _Series:
    label: str
    colour: int
    mode: Apply | None
    """None: built-in replication, which every row has beside it."""
    phase: Phase


_SERIES = (
    _Series("built-in logical replication", 0x8C959F, None, Phase.DISTRIBUTION),
    _Series("distribution (bulk)", 0x0969DA, Apply.AUTO, Phase.DISTRIBUTION),
    _Series("log reader + distribution (bulk)", 0x79B8FF, Apply.AUTO, Phase.WHOLE),
    _Series("distribution (apply: commands)", 0xD4A72C, Apply.COMMANDS, Phase.DISTRIBUTION),
)


@dataclass(frozen=True, slots=True)
class _Bar:
    series: _Series
    per_s: float


def draw(rows: Sequence[Row], path: Path) -> None:
    """One group of bars a workload. Needs Java, as Spark does, and a font."""
    names = [name for name in dict.fromkeys(row.workload for row in rows) if not name.startswith(MEMORY)]
    groups = {name: _bars([row for row in rows if row.workload == name]) for name in names}
    with _java() as java:
        _Canvas(java, groups).write(path)


def _bars(rows: Sequence[Row]) -> list[_Bar]:
    return [_Bar(series, per_s) for series in _SERIES if (per_s := _rate(rows, series)) is not None]


def _rate(rows: Sequence[Row], series: _Series) -> float | None:
    for row in rows:
        if row.phase is series.phase and series.mode in (None, row.mode):
            return row.reference_per_s if series.mode is None else row.ours_per_s
    return None


class _Canvas:
    def __init__(self, java: Any, groups: dict[str, list[_Bar]]) -> None:
        self._java = java
        self._groups = groups
        self._most = max(bar.per_s for bars in groups.values() for bar in bars)
        height = _TOP + _BOTTOM + sum(_height(bars) + _BETWEEN_GROUPS for bars in groups.values())
        awt = java.java.awt
        self._image = awt.image.BufferedImage(_WIDTH * _SCALE, height * _SCALE, awt.image.BufferedImage.TYPE_INT_RGB)
        self._pen = self._image.createGraphics()
        self._pen.scale(float(_SCALE), float(_SCALE))
        hints = awt.RenderingHints
        self._pen.setRenderingHint(hints.KEY_TEXT_ANTIALIASING, hints.VALUE_TEXT_ANTIALIAS_ON)
        self._rectangle(_PAPER, 0, 0, _WIDTH, height)

    def write(self, path: Path) -> None:
        self._text(
            "Changes a second, draining the same backlog (in brackets: times built-in replication)",
            16,
            24,
            bold=True,
            size=15,
        )
        self._legend()
        top = _TOP
        for name, bars in self._groups.items():
            self._group(name, bars, top)
            top += _height(bars) + _BETWEEN_GROUPS
        self._java.javax.imageio.ImageIO.write(self._image, "png", self._java.java.io.File(str(path.absolute())))

    def _legend(self) -> None:
        left = 16
        used = {bar.series for bars in self._groups.values() for bar in bars}
        for series in (it for it in _SERIES if it in used):
            self._rectangle(series.colour, left, 38, 11, 11)
            self._text(series.label, left + 16, 48)
            left += 36 + self._pen.getFontMetrics().stringWidth(series.label)

    def _group(self, name: str, bars: Sequence[_Bar], top: int) -> None:
        middle = top + _height(bars) // 2
        self._text(name, 16, middle + 4)
        self._rectangle(_FAINT, _LABELS - 1, top - 3, 1, _height(bars) + 6)
        for number, bar in enumerate(bars):
            at = top + number * (_BAR + _BETWEEN_BARS)
            length = max(1, round((_WIDTH - _LABELS - _RIGHT) * bar.per_s / self._most))
            self._rectangle(bar.series.colour, _LABELS, at, length, _BAR)
            self._text(_label(bar, bars), _LABELS + length + 6, at + _BAR - 3, size=11)

    def _rectangle(self, colour: int, left: int, top: int, width: int, height: int) -> None:
        self._pen.setColor(self._java.java.awt.Color(colour))
        self._pen.fillRect(left, top, width, height)

    def _text(self, text: str, left: int, base: int, *, bold: bool = False, size: int = 12) -> None:
        font = self._java.java.awt.Font
        self._pen.setColor(self._java.java.awt.Color(_INK))
        self._pen.setFont(font("SansSerif", font.BOLD if bold else font.PLAIN, size))
        self._pen.drawString(text, left, base)


def _height(bars: Sequence[_Bar]) -> int:
    return len(bars) * (_BAR + _BETWEEN_BARS) - _BETWEEN_BARS


def _label(bar: _Bar, bars: Sequence[_Bar]) -> str:
    """Its rate, and how many times the built-in's."""
    reference = bars[0].per_s
    ratio = "" if bar.series.mode is None else f"  ({bar.per_s / reference:.2f})"
    return f"{bar.per_s:,.0f}{ratio}"


@contextmanager
def _java() -> Iterator[Any]:
    """A JVM of its own: one that runs already would have to know where it is allowed to look."""
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    settings = SparkConf(loadDefaults=False)
    settings.set("spark.master", "local[1]").set("spark.driver.extraJavaOptions", _HEADLESS)
    os.environ.update({"SPARK_LOCAL_IP": "127.0.0.1", **submission_variables()})
    with quiet_start():
        gateway = launch_gateway(settings)  # type: ignore[no-untyped-call]
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
        # It ends with its input.
        gateway.proc.communicate(timeout=_END_SECONDS)


if __name__ == "__main__":
    draw(read_rows(Path(sys.argv[1])), Path(sys.argv[2]))
