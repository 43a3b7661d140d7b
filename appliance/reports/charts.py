"""The charts of the report mail: PNG, drawn without a display or shared state, readable on a phone."""

from __future__ import annotations

import io

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from appliance.reports.content import Lines
from appliance.reports.writing import Writing

__all__ = ["bars"]

WIDTH_IN, HEIGHT_IN, DPI = 6.0, 2.7, 200  # 1 200 pixels wide; the mail shows it half as wide, or as there is room
COLOURS = {
    "accepted": "#2b5c9e",
    "delivered": "#1d6b3a",
    "deferred": "#9a5b00",
    "bounced": "#a3231f",
}  # as the portal's
INK, SOFT, LINE = "#1c2430", "#4a5666", "#d5dbe3"


def bars(lines: Lines, writing: Writing) -> bytes:
    """Draws delivered, deferred and bounced as stacked bars, and accepted as a line; returns the image."""
    figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    places = range(len(lines.labels))
    below = [0.0] * len(lines.labels)
    for name in ("delivered", "deferred", "bounced"):
        values = [value or 0.0 for value in lines.values.get(name, below)]
        axes.bar(places, values, 0.8, bottom=below, color=COLOURS[name], label=name)
        below = [low + value for low, value in zip(below, values, strict=True)]
    accepted = [float("nan") if value is None else value for value in lines.values.get("accepted", [])]
    if accepted:
        axes.plot(
            places,
            accepted,
            color=COLOURS["accepted"],
            marker="o",
            markersize=3,
            linewidth=1.5,
            label="accepted",
        )
    step = max(1, -(-len(lines.labels) // 6))
    axes.set_xticks(list(places)[::step], lines.labels[::step])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: writing.number(value)))
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color=LINE, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(LINE)
    axes.tick_params(colors=SOFT, labelsize=10, length=0)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, frameon=False, fontsize=10, labelcolor=INK, borderaxespad=0.2,
                columnspacing=1.2, handlelength=1.4)  # fmt: skip
    out = io.BytesIO()
    FigureCanvasAgg(figure).print_png(out, metadata={"Software": None})  # type: ignore[no-untyped-call]
    return out.getvalue()
