"""Line charts as inline SVG, and a confusion matrix as an HTML table; colours come from the page's style sheet."""

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 560, 320
LEFT, RIGHT, TOP, BOTTOM = 62, 18, 30, 46


class Line(NamedTuple):
    """``points``: (x, y). ``style``: CSS class of its colour. ``marks``: a dot at each point."""

    label: str
    style: str
    points: Sequence[tuple[float, float]]
    marks: bool = False
    dashed: bool = False


class Axis(NamedTuple):
    """One direction: values from ``low`` to ``high`` at pixels ``start`` to ``end``."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    def place(self, value: float) -> float:
        """The pixel of a value."""
        low, high, at = (
            (math.log(x) for x in (self.low, self.high, value)) if self.log else (self.low, self.high, value)
        )
        return self.start + (self.end - self.start) * (at - low) / (high - low)

    def ticks(self) -> list[float]:
        """Round values between the ends."""
        if not self.log:
            step = _round_step((self.high - self.low) / 5)
            first = math.ceil(self.low / step - 1e-9)
            return [round(number * step, 10) for number in range(first, math.floor(self.high / step + 1e-9) + 1)]
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        wide = self.high / self.low > 300
        every = [factor * 10.0**power for power in powers for factor in ((1,) if wide else (1, 2, 5))]
        return [value for value in every if self.low * 0.999 <= value <= self.high * 1.001]


def _round_step(step: float) -> float:
    size = 10 ** math.floor(math.log10(step))
    return next(factor * size for factor in (1, 2, 5, 10) if factor * size >= step * 0.999)


def line_chart(
    title: str, lines: Sequence[Line], *, x: str, y: str, log: bool = False, x_ticks: Sequence[float] | None = None
) -> str:
    """An SVG with a legend; ``log``: both axes. Lines without points are left out; "" when none is left."""
    lines = [line for line in lines if line.points]
    if not lines:
        return ""
    across = _axis([px for line in lines for px, _ in line.points], LEFT, WIDTH - RIGHT, log)
    top = TOP + 17 * len(lines)
    up = _axis([py for line in lines for _, py in line.points], HEIGHT + 17 * len(lines) - BOTTOM, top, log)
    parts = [_grid(across, up, x, y, x_ticks), *(_drawn(line, across, up) for line in lines), _legend(lines)]
    size = f"0 0 {WIDTH} {HEIGHT + 17 * len(lines)}"
    return f'<svg viewBox="{size}" role="img" aria-label="{escape(title)}">{_text(LEFT, 16, title, "title", "start")}' \
        + "".join(parts) + "</svg>"  # fmt: skip


def _axis(values: Sequence[float], start: float, end: float, log: bool) -> Axis:
    low, high = min(values), max(values)
    if log:
        low, high = low / 1.15, high * 1.15
    else:
        margin = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
        low, high = (max(0.0, low - margin) if low >= 0 else low - margin), high + margin
    return Axis(low, high, start, end, log)


def _grid(across: Axis, up: Axis, x: str, y: str, x_ticks: Sequence[float] | None) -> str:
    parts = []
    for value in up.ticks():
        at = up.place(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(_text(LEFT - 8, at + 4, _short(value), "tick", "end"))
    for value in x_ticks or across.ticks():
        at = across.place(value)
        parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{up.end:.1f}" y2="{up.start:.1f}"/>')
        parts.append(_text(at, up.start + 17, _short(value), "tick", "middle"))
    middle = (up.start + up.end) / 2
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, up.start + 37, x, "axis", "middle"))
    parts.append(
        f'<text class="axis" text-anchor="middle" transform="translate(15 {middle:.0f}) rotate(-90)">{escape(y)}</text>'
    )
    return "".join(parts)


def _drawn(line: Line, across: Axis, up: Axis) -> str:
    places = [(across.place(px), up.place(py)) for px, py in line.points]
    path = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
    dash = ' stroke-dasharray="6 4"' if line.dashed else ""
    drawn = f'<polyline class="line {line.style}" points="{path}"{dash}/>'
    if line.marks:
        drawn += "".join(
            f'<circle class="dot {line.style}" cx="{px:.1f}" cy="{py:.1f}" r="3.6">'
            f"<title>{escape(line.label)}: {_short(vx)}, {_short(vy)}</title></circle>"
            for (px, py), (vx, vy) in zip(places, line.points, strict=True)
        )
    return drawn


def _legend(lines: Sequence[Line]) -> str:
    parts = []
    for number, line in enumerate(lines):
        at = 34 + 17 * number
        dash = ' stroke-dasharray="6 4"' if line.dashed else ""
        parts.append(f'<line class="line {line.style}" x1="{LEFT}" x2="{LEFT + 26}" y1="{at}" y2="{at}"{dash}/>')
        parts.append(_text(LEFT + 34, at + 4, line.label, "legend", "start"))
    return "".join(parts)


def _text(x: float, y: float, text: str, style: str, anchor: str) -> str:
    return f'<text class="{style}" text-anchor="{anchor}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _short(value: float) -> str:
    if abs(value) >= 1:
        return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
    return f"{value:.3g}"


def confusion_table(counts: Sequence[Sequence[int]], labels: Sequence[str]) -> str:
    """An HTML table: rows true, columns predicted; the darker, the larger the share of the true label's texts."""
    head = "".join(f'<th class="up"><span>{escape(label)}</span></th>' for label in labels)
    rows = [f"<tr><th></th>{head}<th class='num'>texts</th></tr>"]
    for place, (label, row) in enumerate(zip(labels, counts, strict=True)):
        total = sum(row)
        cells = ""
        for column, value in enumerate(row):
            share = value / total if total else 0.0
            kind = "hit" if column == place else "miss"
            strong = " strong" if share > 0.55 else ""
            shown = str(value) if value else "<span class='zero'>·</span>"
            cells += f'<td class="cell {kind}{strong}" style="--share:{share:.3f}" title="{share:.0%}">{shown}</td>'
        rows.append(f"<tr><th class='side'>{escape(label)}</th>{cells}<td class='num'>{total}</td></tr>")
    return f'<table class="confusion">{"".join(rows)}</table>'
