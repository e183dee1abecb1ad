"""What `bench` prints: a line a workload, then where the time of each goes."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.bench.kernels import KernelTime
from mlcbuild.cli.output import text
from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.output.terminal import Style
from mlcbuild.runtime.bench.workload import Phase, Speed

_SHOWN = 12
_LEAST_SHARE = 0.005
_MOST_OF_A_COPY = 2  # caches are faster than memory
_OTHER_COLUMNS = 37
_LETTERS = 26


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A workload's speed, and its kernels, empty where they were not asked for. `replay` are the seconds that a CUDA
    graph of some of them takes in their place, 0 without one."""

    speed: Speed
    kernels: tuple[KernelTime, ...]
    replay: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Device:
    """What a library ran on. `copied` are bytes a second that copying reads and writes; `operations` are those of
    tensor cores a second by the maker's sheet, 0 where they are not known."""

    name: str
    clocks: str
    driver: str
    threads: int
    copied: float
    operations: float


@dataclass(frozen=True, kw_only=True)
class MeasuredSubject:
    """All that was measured of a subject."""

    title: str
    weights: str  # "its own" or "random"
    measured: tuple[Measured, ...]


@dataclass(frozen=True, kw_only=True)
class Report:
    """All that one command measured: of each subject the same workloads, in turn."""

    device: Device
    subjects: tuple[MeasuredSubject, ...]

    def ratio(self, subject: MeasuredSubject, workload: int) -> float:
        """A subject's tokens a second as a share of the first subject's, in the workload of that place."""
        first = self.subjects[0].measured[workload].speed
        return subject.measured[workload].speed.tokens_a_second / first.tokens_a_second


def document(report: Report) -> dict[str, object]:
    """The report as JSON: seconds, bytes, and operations."""
    return {
        "device": asdict(report.device),
        "subjects": [
            {
                "subject": subject.title,
                "weights": subject.weights,
                "workloads": [
                    {
                        **asdict(each.speed.workload),
                        "seconds": list(each.speed.seconds),
                        "median_seconds": each.speed.median,
                        "spread": each.speed.spread,
                        "tokens_per_second": each.speed.tokens_a_second,
                        "ratio": report.ratio(subject, place),
                        "replay_seconds": each.replay,
                        "kernels": [asdict(kernel) for kernel in each.kernels],
                    }
                    for place, each in enumerate(subject.measured)
                ],
            }
            for subject in report.subjects
        ],
    }


def print_report(report: Report, options: GlobalOptions, *, kernels: bool = True) -> None:
    style = options.style(sys.stdout)
    device = report.device
    threads = f", {text.plural(device.threads, 'thread')}" if device.threads else ""
    on = f" on {device.name}{threads}; copies {device.copied / 1e9:,.0f} GB/s"
    if len(report.subjects) == 1:
        options.show([report.subjects[0].title + on])
    else:
        lines = [f"{mark} {subject.title}" for mark, subject in _marked(report)]
        options.show([*lines, "in turn" + on])
    _print_speeds(report, style)
    marked = [(mark, each) for mark, subject in _marked(report) for each in subject.measured]
    told = [(mark, each) for mark, each in marked if each.kernels and kernels]
    names = [kernel.text for _, each in told for kernel in _shown(each)]
    columns = text.name_columns(("99 others", *names), width=options.width(sys.stdout), others=_OTHER_COLUMNS)
    for mark, each in told:
        print()
        _print_kernels(mark, each, device.copied, columns, style)


def _marked(report: Report) -> list[tuple[str, MeasuredSubject]]:
    """The subjects by what tables call them: A, B and so on, and nothing if there is one."""
    if len(report.subjects) == 1:
        return [("", report.subjects[0])]
    return [(_mark(place), subject) for place, subject in enumerate(report.subjects)]


def _mark(place: int) -> str:
    return chr(ord("A") + place) if place < _LETTERS else str(place + 1)


def _print_speeds(report: Report, style: Style) -> None:
    several = len(report.subjects) > 1
    heading = f"{'phase':<8} {'batch':>5} {'context':>7} {'tokens':>6} {'ms':>9} {'spread':>7} {'tokens/s':>10}"
    print(style.bold(f"{heading} {'of A':>6}" if several else heading))
    for place in range(len(report.subjects[0].measured)):
        for mark, subject in _marked(report):
            speed = subject.measured[place].speed
            workload = speed.workload
            tokens = workload.tokens if workload.phase is Phase.PREFILL else 1
            line = (
                f"{workload.phase:<8} {workload.batch:>5} {workload.context:>7} {tokens:>6}"
                f" {1e3 * speed.median:>9.2f} {100 * speed.spread:>5.0f} % {speed.tokens_a_second:>10,.1f}"
            )
            print(f"{line} {report.ratio(subject, place):>6.2f} {mark}" if several else line)


def _shown(measured: Measured) -> tuple[KernelTime, ...]:
    """The kernels that have a line of their own."""
    least = _LEAST_SHARE * sum(kernel.seconds for kernel in measured.kernels)
    return tuple(kernel for kernel in measured.kernels[:_SHOWN] if kernel.seconds >= least)


def _print_kernels(mark: str, measured: Measured, copied: float, columns: int, style: Style) -> None:
    workload = measured.speed.workload
    total = sum(kernel.seconds for kernel in measured.kernels)
    title = f"{mark} {workload.phase}, batch {workload.batch}, {workload.context} tokens before".lstrip()
    print(style.bold(f"{title}: {1e3 * total:.2f} ms with a wait after each call"))
    if measured.replay:
        print(f"as a CUDA graph, without the waits: {1e3 * measured.replay:.2f} ms for most of it")
    print(f"{'kernel':<{columns}} {'calls':>5} {'ms':>8} {'share':>5} {'GB/s':>7} {'TFLOP/s':>7}")
    shown = _shown(measured)
    for kernel in shown:
        time = f"{1e3 * kernel.seconds:>8.2f} {100 * kernel.seconds / total:>3.0f} %"
        moved = _rate(_moved(kernel, copied), kernel.seconds, 9)
        computed = _rate(kernel.operations, kernel.seconds, 12)
        print(f"{text.padded(kernel.text, columns)} {kernel.calls:>5} {time} {moved:>7} {computed:>7}".rstrip())
    rest = measured.kernels[len(shown) :]
    if rest:
        seconds = sum(kernel.seconds for kernel in rest)
        named = f"{len(rest)} others"
        print(f"{named:<{columns}} {'':>5} {1e3 * seconds:>8.2f} {100 * seconds / total:>3.0f} %")


def _moved(kernel: KernelTime, copied: float) -> int:
    """Bytes; 0 where they cannot be: a kernel that looks rows of a table up reads little of it."""
    return kernel.bytes if kernel.bytes / kernel.seconds < _MOST_OF_A_COPY * copied else 0


def _rate(amount: int, seconds: float, power: int) -> str:
    """`amount` a second, in units of 10 to `power`; nothing of nothing."""
    return f"{amount / seconds / 10**power:,.1f}" if amount and seconds else ""


def print_document(report: Report) -> None:
    print_json(document(report))
