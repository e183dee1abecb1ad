"""The chart of a comparison, as SVG: a bar for each build at each size, as long as its seconds a call."""

from __future__ import annotations

from xml.sax.saxutils import escape

from mlcbuild.cli.compare.comparison import Comparison
from mlcbuild.cli.compare.tables import title_of

_WIDTH, _LEFT, _RIGHT, _BAR, _GAP, _TOP = 860, 300, 110, 16, 6, 44
_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f")


def comparison_svg(comparison: Comparison) -> str:
    """Bars of one size share a scale, on which the slowest is as long as there is room."""
    y = _TOP
    lines: list[str] = []
    for size in comparison.sizes:
        shown = [
            (number, build.label, case)
            for number, build in enumerate(comparison.builds)
            for case in build.cases
            if case.size == size and not case.failure
        ]
        slowest = max((case.seconds for _, _, case in shown), default=0.0)
        lines.append(f'<text x="16" y="{y + 12}" font-weight="bold">size {size}</text>')
        y += _BAR + _GAP
        for number, label, case in shown:
            length = (_WIDTH - _LEFT - _RIGHT) * case.seconds / slowest
            colour = _COLOURS[number % len(_COLOURS)]
            lines += [
                f'<text x="{_LEFT - 8}" y="{y + 12}" text-anchor="end">{escape(label)}</text>',
                f'<rect x="{_LEFT}" y="{y}" width="{length:.1f}" height="{_BAR}" fill="{colour}"/>',
                f'<text x="{_LEFT + length + 6:.1f}" y="{y + 12}">{1e6 * case.seconds:,.1f} µs</text>',
            ]
            y += _BAR + _GAP
        y += _GAP
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y + 10}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{_WIDTH}" height="{y + 10}" fill="#ffffff"/>',
        f'<text x="16" y="24" font-size="15">{escape(title_of(comparison))}</text>',
    ]
    return "\n".join([*head, *lines, "</svg>"]) + "\n"
