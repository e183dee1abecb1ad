"""`mlcbuild bench`: from the command line to what is measured and printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.bench.kernels import kernel_times, replay_seconds
from mlcbuild.cli.bench.output import Device, Measured, MeasuredSubject, Report, print_document, print_report
from mlcbuild.cli.bench.roofline import roofline_svg
from mlcbuild.cli.bench.subject import Subject
from mlcbuild.cli.output.slow_progress import SlowProgress, slow_progress
from mlcbuild.cli.output.terminal import OutputFormat
from mlcbuild.errors import LocalEnvironmentError, UsageError
from mlcbuild.runtime.bench.device_speed import copied_bytes_a_second, operations_a_second
from mlcbuild.runtime.bench.measuring import call_times, check, measure_in_turn
from mlcbuild.runtime.bench.random_weights import random_weights
from mlcbuild.runtime.bench.workload import Phase, Speed, Workload
from mlcbuild.runtime.devices import kind_of
from mlcbuild.runtime.engine import Engine
from mlcbuild.runtime.measuring.device import measuring_device
from mlcbuild.runtime.model import Model
from mlcbuild.runtime.threads import available_cores


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """`prompts` are lengths of prefills, for each of `batches`; `tokens` are the steps of a decoding after `context`
    tokens, 0 for none. `kernels` asks for tables of where the time goes; `svg` is a file for the chart of that."""

    batches: tuple[int, ...]
    prompts: tuple[int, ...]
    context: int
    tokens: int
    rounds: int
    threads: int
    kernels: bool
    svg: Path | None

    def workloads(self) -> list[Workload]:
        """Prompts of each length, then decodings; each for every batch."""
        prefills = [
            Workload(phase=Phase.PREFILL, batch=batch, tokens=prompt, context=0)
            for batch in self.batches
            for prompt in self.prompts
        ]
        decodings = [
            Workload(phase=Phase.DECODE, batch=batch, tokens=self.tokens, context=self.context)
            for batch in self.batches
            if self.tokens
        ]
        return prefills + decodings


def bench(subjects: Sequence[Subject], given: BenchOptions, output: OutputFormat, options: GlobalOptions) -> None:
    """Measures the subjects in turn. Raises UsageError for one that does not run, has no room for what is asked, or is
    for another kind of device than the first; LocalEnvironmentError where the device is missing, or the chart cannot be
    written."""
    _check_together(subjects, given)
    with slow_progress(options) as progress:
        threads = given.threads or available_cores()  # also on a busy machine: a measurement says what it measured
        models = [_model(subject, threads, progress) for subject in subjects]
        workloads = given.workloads()
        for workload in workloads:
            for model in models:
                check(model, workload)
        device = _device(models[0], subjects[0].library, given.threads)
        speeds = []
        for number, workload in enumerate(workloads):
            progress("measuring", number, len(workloads))
            rounds = given.rounds if workload.phase is Phase.PREFILL else workload.tokens
            speeds.append(measure_in_turn(models, workload, rounds=rounds))
        # Last, since TVM goes on to tell of every call, which takes its time, for as long as the library is loaded.
        measured = [
            tuple(_measured(model, speed, subject, given) for speed in own)
            for model, subject, own in zip(models, subjects, zip(*speeds, strict=True), strict=True)
        ]
    report = Report(
        device=device,
        subjects=tuple(
            MeasuredSubject(title=subject.title, weights="its own" if subject.package else "random", measured=own)
            for subject, own in zip(subjects, measured, strict=True)
        ),
    )
    if given.svg is not None:
        _write(given.svg, roofline_svg(report.subjects[0], report.device))
    if output is OutputFormat.JSON:
        print_document(report)
    else:
        print_report(report, options, kernels=given.kernels)


def _check_together(subjects: Sequence[Subject], given: BenchOptions) -> None:
    if given.svg is not None and len(subjects) > 1:
        raise UsageError(
            f"--svg {given.svg}: a chart shows one model, and there are {len(subjects)}",
            advice=("name one, or leave --svg out",),
        )
    first = kind_of(subjects[0].library)
    for subject in subjects[1:]:
        if (kind := kind_of(subject.library)) != first:
            raise UsageError(
                f"{subject.title} is for {kind}, and {subjects[0].title} for {first}",
                advice=("measure in turn what runs on one device",),
            )


def _measured(model: Model, speed: Speed, subject: Subject, given: BenchOptions) -> Measured:
    calls = call_times(model, speed.workload) if given.kernels or given.svg else ()
    return Measured(speed=speed, kernels=tuple(kernel_times(calls, subject.descriptions)), replay=replay_seconds(calls))


def _model(subject: Subject, threads: int, progress: SlowProgress) -> Model:
    if subject.package is not None:
        return Engine(
            subject.package,
            threads=threads,
            loaded=lambda done, total: progress("loading the weights", done, total),
        )
    return Model(subject.library, random_weights, threads=threads)


def _device(model: Model, library: Path, threads: int) -> Device:
    kind = kind_of(library)
    found = measuring_device(kind, threads=threads)
    return Device(
        name=found.name,
        clocks=found.clocks,
        driver=found.driver,
        threads=found.threads,
        copied=copied_bytes_a_second(model.machine, kind, threads=threads),
        operations=operations_a_second(found.name),
    )


def _write(path: Path, chart: str) -> None:
    try:
        path.write_text(chart, encoding="utf-8")
    except OSError as error:
        raise LocalEnvironmentError(f"{path} cannot be written: {error.strerror or error}") from error


def numbers(given: str, *, option: str) -> tuple[int, ...]:
    """`1,8` as numbers. Raises UsageError for anything else."""
    advice = (f"for example {option} 1,8",)
    parts = [part.strip() for part in given.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() for part in parts):
        raise UsageError(f"{option} {given}: not a list of numbers", advice=advice)
    if not all(map(int, parts)):
        raise UsageError(f"{option} {given}: each number is at least 1", advice=advice)
    return tuple(map(int, parts))
