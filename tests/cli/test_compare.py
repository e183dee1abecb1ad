"""What `mlcbuild compare` prints and writes, by values; tests/end_to_end/compilers measures real builds."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from xml.etree import ElementTree

from benchmarks.compilers_compared import page, read
from mlcbuild.cli.compare.chart import comparison_svg
from mlcbuild.cli.compare.comparison import Comparison, fastest, read_comparison
from mlcbuild.cli.compare.tables import as_markdown, as_text, failures_of, tables_of, title_of


def case(size: int, seconds: float) -> dict[str, object]:
    return {
        "size": size,
        "first_seconds": 10 * seconds,
        "seconds": seconds,
        "spread": 0.05,
        "calls": 100,
        "error": 1.5e-7,
        "largest": 2.0,
    }


def comparison() -> Comparison:
    named = {"version": "1.2", "bytes": 33_600_000}
    return read_comparison(
        {
            "version": 1,
            "rounds": 5,
            "threads": 2,
            "models": [
                {
                    **named,
                    "label": "//m:one",
                    "compiler": "One",
                    "load_seconds": 0.05,
                    "peak_bytes": 100_000_000,
                    "cases": [case(1, 2e-4), case(8, 1e-3)],
                },
                {
                    **named,
                    "label": "//m:other|<b>",
                    "compiler": "Other",
                    "load_seconds": 0.01,
                    "peak_bytes": 90_000_000,
                    "cases": [case(1, 1e-4), {"size": 8, "failure": "ValueError: not 8\nand more"}],
                },
                {**named, "label": "//m:broken", "compiler": "Broken", "failure": "it crashed with SIGSEGV"},
            ],
        },
        label="//m:compared",
        machine="Some CPU",
        compile_seconds={"//m:one": 1.25},
        cached_seconds={"//m:one": 0.5, "//m:other|<b>": 0.25, "//m:broken": 0.125},
    )


def test_tables() -> None:
    found = comparison()
    assert title_of(found) == "//m:compared on Some CPU, 2 threads, median of 5 rounds in turn"
    builds, speeds = (as_text(table) for table in tables_of(found))
    assert builds == [
        "build          compiler    compile s  no-op ms   size  load ms    peak",
        "//m:one        One 1.2          1.25     500.0  34 MB     50.0  100 MB",
        "//m:other|<b>  Other 1.2                 250.0  34 MB     10.0   90 MB",
        "//m:broken     Broken 1.2                125.0  34 MB",
    ]
    assert speeds == [
        "build          size  first ms       µs  spread   per s  × fastest    error",
        "//m:one           1      2.00    200.0     5 %   5,000       2.00  1.5e-07",
        "//m:other|<b>     1      1.00    100.0     5 %  10,000       1.00  1.5e-07",
        "//m:one           8     10.00  1,000.0     5 %   8,000       1.00  1.5e-07",
    ]
    assert list(failures_of(found)) == [
        "//m:other|<b> at 8: ValueError: not 8",
        "//m:broken: it crashed with SIGSEGV",
    ]
    assert (fastest(found.builds, 1), fastest(found.builds, 3)) == (1e-4, 0.0)


def test_markdown_and_chart_escape_what_they_would_read() -> None:
    markdown = as_markdown(comparison())
    assert "| //m:other&#124;<b> | 1 | 1.00 | 100.0 | 5 % | 10,000 | 1.00 | 1.5e-07 |\n" in markdown
    assert "- //m:broken: it crashed with SIGSEGV\n" in markdown
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows[:5]} == {8}
    assert {line.count("|") for line in rows[5:]} == {9}
    root = ElementTree.fromstring(comparison_svg(comparison()))
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "//m:other|<b>" in texts
    bars = [float(each.attrib["width"]) for each in root.iter("{http://www.w3.org/2000/svg}rect")][1:]
    assert bars[0] == 2 * bars[1], "of one size"
    assert bars[2] == bars[0], "sizes have scales of their own"


def test_the_page_is_made_of_what_is_printed() -> None:
    printed = json.loads(json.dumps(asdict(comparison())))
    assert read(printed) == comparison()
    made = page([read(printed)], date="2026-01-31", note="beside other work")
    assert made.startswith("<!-- help: ")
    assert "as measured on 2026-01-31, beside other work." in made
    assert "- Size 1: Other is fastest, 100.0 µs; in its times: One 2.0.\n" in made
    assert "- Size 8: One is fastest, 1,000.0 µs.\n" in made
    assert as_markdown(comparison()) in made
    assert "| One 1.2 | a rule of the workspace | | | |\n" in made


def test_the_page_says_who_is_faster_than_tvm() -> None:
    found = comparison()
    first, second, *_ = found.builds
    ours = replace(first, label="//m:tvm", compiler="TVM MetaSchedule")
    slow = replace(
        first, label="//m:default", compiler="TVM relax.build", cases=(replace(first.cases[0], seconds=1.0),)
    )
    made = page([replace(found, builds=(first, second, ours, slow))], date="2026-01-31")
    assert "Faster than TVM MetaSchedule: Other (2.0 ×)." in made
    made = page([replace(found, builds=(first, slow))], date="2026-01-31")
    assert "Faster than TVM relax.build: One (5000.0 ×).\n" in made
    quick = replace(slow, cases=(replace(first.cases[0], seconds=1e-6),))
    made = page([replace(found, builds=(first, quick))], date="2026-01-31")
    assert "in its times: One 200.0. Nothing is faster than TVM relax.build. Slower: One.\n" in made
