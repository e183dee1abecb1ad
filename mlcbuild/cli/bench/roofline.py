"""The roofline chart of what was measured (Williams, Waterman and Patterson 2009), as SVG.

Kernels are points: operations a byte to the right, operations a second upwards, both by powers of ten. The roof is
what memory and arithmetic allow: the speed of a copy times the operations a byte, and never more than the device's
operations a second, where these are known. A point's area is its share of the pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from xml.sax.saxutils import escape

from mlcbuild.cli.bench.kernels import KernelTime
from mlcbuild.cli.bench.output import Device, MeasuredSubject

_WIDTH, _HEIGHT, _MARGIN = 860, 560, 70
_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f")


def roofline_svg(subject: MeasuredSubject, device: Device) -> str:
    """The chart of all workloads whose kernels were measured."""
    points = [
        (number, kernel, kernel.seconds / sum(each.seconds for each in measured.kernels))
        for number, measured in enumerate(subject.measured)
        for kernel in measured.kernels
        if kernel.operations and kernel.bytes
    ]
    roof = device.operations or max((kernel.operations / kernel.seconds for _, kernel, _ in points), default=1e12)
    corner = roof / device.copied
    shown = [(_intensity(kernel), kernel.operations / kernel.seconds) for _, kernel, _ in points]
    axes = _Axes(points=[*shown, (corner, roof)], top=roof)
    begin = max(axes.left, axes.low / device.copied)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        f'<text x="{_MARGIN}" y="24" font-size="15">{escape(subject.title)} on {escape(device.name)}</text>',
        *axes.grid(),
        axes.line([(begin, begin * device.copied), (corner, roof), (axes.right, roof)]),
    ]
    for number, kernel, share in points:
        x, y = axes.place(_intensity(kernel), kernel.operations / kernel.seconds)
        colour = _COLOURS[number % len(_COLOURS)]
        lines.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{3 + 20 * math.sqrt(share):.1f}" fill="{colour}" fill-opacity="0.5">'
            f"<title>{escape(kernel.text)}: {100 * share:.0f} %</title></circle>"
        )
    lines += _legend(subject)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _intensity(kernel: KernelTime) -> float:
    return kernel.operations / kernel.bytes


def _legend(subject: MeasuredSubject) -> Iterable[str]:
    for number, measured in enumerate(subject.measured):
        workload = measured.speed.workload
        y = _HEIGHT - _MARGIN - 16 * (len(subject.measured) - number)
        tokens = f", {workload.tokens} tokens" if workload.phase == "prefill" else f" after {workload.context} tokens"
        yield f'<circle cx="{_WIDTH - 250}" cy="{y - 4}" r="5" fill="{_COLOURS[number % len(_COLOURS)]}"/>'
        yield f'<text x="{_WIDTH - 238}" y="{y}">{workload.phase} of {workload.batch}{tokens}</text>'


def _decade(value: float) -> float:
    """The power of ten that is at most `value`."""
    return 10.0 ** math.floor(math.log10(value))


class _Axes:
    """Where a point lies, by powers of ten around all points and the roof."""

    def __init__(self, *, points: list[tuple[float, float]], top: float) -> None:
        across, upwards = [x for x, _ in points], [y for _, y in points]
        self.left, self.right = _decade(min(across)), 10 * _decade(max(across)) * 10
        self.low, self.high = min(_decade(min(upwards)), _decade(top)), 10 * _decade(top)

    def place(self, x: float, y: float) -> tuple[float, float]:
        across = math.log10(x / self.left) / math.log10(self.right / self.left)
        upwards = math.log10(max(y, self.low) / self.low) / math.log10(self.high / self.low)
        return _MARGIN + across * (_WIDTH - 2 * _MARGIN), _HEIGHT - _MARGIN - upwards * (_HEIGHT - 2 * _MARGIN)

    def line(self, points: list[tuple[float, float]]) -> str:
        shown = " ".join(f"{x:.1f},{y:.1f}" for x, y in (self.place(*point) for point in points))
        return f'<polyline points="{shown}" fill="none" stroke="#333333" stroke-width="2"/>'

    def grid(self) -> Iterable[str]:
        for power in range(round(math.log10(self.left)), round(math.log10(self.right)) + 1):
            x, y = self.place(10.0**power, self.low)
            yield f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{x:.1f}" y2="{_MARGIN}" stroke="#dddddd"/>'
            yield f'<text x="{x:.1f}" y="{y + 18:.1f}" text-anchor="middle">{10.0**power:g}</text>'
        for power in range(round(math.log10(self.low)), round(math.log10(self.high)) + 1):
            x, y = self.place(self.left, 10.0**power)
            yield f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{_WIDTH - _MARGIN}" y2="{y:.1f}" stroke="#dddddd"/>'
            yield f'<text x="{x - 8:.1f}" y="{y + 4:.1f}" text-anchor="end">{10.0 ** (power - 9):g}</text>'
        yield f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 22}" text-anchor="middle">operations a byte</text>'
        yield f'<text x="16" y="{_MARGIN - 18}">GFLOP/s</text>'
