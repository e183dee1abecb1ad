"""What `tune` prints: a line a kernel, and how much faster the kernels are expected to be together."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.output import text
from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.output.terminal import OutputFormat
from mlcbuild.cli.tune.plan import TunableKernel, tried_shapes, untuned_seconds
from mlcbuild.tuning.choice import Choice, choices
from mlcbuild.tuning.record import Outcome, Record

_OTHER_COLUMNS = 21


def print_tuned(
    kernels: Sequence[TunableKernel],
    records: Mapping[str, Sequence[Record]],
    *,
    before: Mapping[str, Sequence[Record]],
    spent: int,
    output: OutputFormat,
    options: GlobalOptions,
) -> None:
    """`before` are the records that there were before this command, which made `spent` trials."""
    chosen = choices(record for of_kernel in records.values() for record in of_kernel)
    seconds = {kernel.name: untuned_seconds(kernel, records.get(kernel.name, ())) for kernel in kernels}
    total = sum(seconds.values())
    tuned = sum(seconds[name] * (chosen[name].ratio if name in chosen else 1.0) for name in seconds)
    ordered = sorted(kernels, key=lambda kernel: (-seconds[kernel.name], kernel.text))
    if output is OutputFormat.JSON:
        print_json(
            {
                "trials": spent,
                "expected_ratio": tuned / total if total else 1.0,
                "kernels": [
                    _document(
                        kernel, records.get(kernel.name, ()), chosen.get(kernel.name), seconds[kernel.name], total
                    )
                    for kernel in ordered
                ],
            }
        )
        return
    style = options.style(sys.stdout)
    columns = text.name_columns(
        ("kernel", *(kernel.text for kernel in ordered)), width=options.width(sys.stdout), others=_OTHER_COLUMNS
    )
    print(style.bold(f"{'kernel':<{columns}} tried    best  share"))
    for kernel in ordered:
        of_kernel = records.get(kernel.name, ())
        tried = f"{len(tried_shapes(kernel, of_kernel)) + 1}/{len(kernel.listed.shapes)}"
        choice = chosen.get(kernel.name)
        best = f"{choice.ratio:.2f}×" if choice else ("–" if of_kernel else "?")
        share = f"{100 * seconds[kernel.name] / total:.0f} %" if total else ""
        print(f"{text.padded(kernel.text, columns)} {tried:>5} {best:>7} {share:>6}".rstrip())
    old = sum(bool(before.get(kernel.name)) for kernel in kernels)
    lines = [f"{text.plural(spent, 'trial')} · {text.plural(len(kernels), 'kernel')}, {old} of them known before"]
    if total:
        gain = 100 * (1 - tuned / total)
        lines.append(f'expected: these kernels take {gain:.0f} % less time with tuning = "cached"')
    options.show(lines)


def _document(
    kernel: TunableKernel, records: Sequence[Record], choice: Choice | None, seconds: float, total: float
) -> dict[str, object]:
    failed = [record for record in records if record.outcome is not Outcome.MEASURED]
    return {
        "kernel": kernel.name,
        "text": kernel.text,
        "rule": kernel.listed.rule,
        "target": kernel.library.owner,
        "shapes": len(kernel.listed.shapes),
        "tried": len(tried_shapes(kernel, records)) + 1,
        "failed": len(failed),
        "seconds": seconds,
        "share": seconds / total if total else 0.0,
        "chosen": None
        if choice is None
        else {"shape": dict(choice.shape), "ratio": choice.ratio, "record": choice.record},
    }
