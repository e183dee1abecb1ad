"""Shards of a matrix of 3 × 3 × 3 cells, three of which cannot be, built by machines with different histories."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.cli.kernel_workspace import write_kernel_workspace
from tests.end_to_end.world import World

BUILD_FILE = """\
[workspace]
name = "example"
rules = ["//pipeline:rules.py"]

[[kernels]]
name = "{text}-{level}-{platform}"
matrix.text = ["a", "b", "c"]
matrix.level = [1, 2, 3]
matrix.platform = ["@platforms//:cpu", "@platforms//:x86-64-v4", "@platforms//:sm_75"]
"""
TEXT = "matmul decode {name} first\nmatmul prefill {name} second\nadd decode {name}\nnorm decode shared\n"
MOST_KERNELS_TWICE = 0.20  # of the whole: two shards split one of three texts


def machine(folder: Path, name: str) -> World:
    """A machine with a workspace, a home and an empty cache. Kernels of matrix products depend on the level."""
    place = folder / name
    place.mkdir()
    root = write_kernel_workspace(place)
    (root / "BUILD.toml").write_text(BUILD_FILE)
    for text in "abc":
        (root / text).write_text(TEXT.format(name=text))
    rules = root / "pipeline/rules.py"
    written = rules.read_text()
    platform = (
        '            Attribute(name="platform", kind=AttributeKind.LABEL, provides=("platform",), doc="A platform."),'
    )
    for old, new in (
        ('            Attribute(name="level"', f'            {platform}\n            Attribute(name="level"'),
        ('"level": target.integer("level")', '"level": target.integer("level"), "platform": str(target.platform)'),
        (
            "    target = context.target\n",
            "    target = context.target\n"
            '    if target.integer("level") == 3 and target.platform.name == "sm_75":\n'
            '        context.report_illegal("sm_75 has no level 3", attribute="level")\n',
        ),
    ):
        assert old in written
        written = written.replace(old, new)
    rules.write_text(written)
    split = root / "pipeline/stages/split.py"
    written = split.read_text()
    place_of_level = "        name = hashlib"
    assert place_of_level in written
    by_level = '        if operation == "matmul":\n            body += f" level {target[\'level\']}"\n'
    split.write_text(written.replace(place_of_level, by_level + place_of_level))
    return World(place, name="workspace")


def build(world: World, *arguments: str) -> dict[str, Any]:
    done = world.build(":all", *arguments)
    assert done.code == 0, done.err
    return done.report


def kernels_run(report: dict[str, Any]) -> set[str]:
    """The keys of the kernels that ran."""
    return {
        report["keys"][name]
        for name, result in report["action_results"].items()
        if result["mnemonic"] == "CompileKernel" and result["status"].startswith("executed")
    }


def as_if_quiet(timings: Path) -> None:
    """Give kernels a second and all else a tenth: what they take here says more of other tests than of them."""
    document = json.loads(timings.read_text())
    for group in document["groups"]:
        for name, seconds in group["seconds"].items():
            assert seconds >= 0
            group["seconds"][name] = 1.0 if name.startswith("CompileKernel ") else 0.1
    timings.write_text(json.dumps(document))


@pytest.mark.parametrize("has_timings", [True, False])
def test_two_shards_are_the_whole_and_run_few_kernels_twice(tmp_path: Path, has_timings: bool) -> None:
    first = machine(tmp_path, "first")
    whole = build(first)
    assert len(whole["targets"]) == 24
    assert whole["skipped"] == {f"//:{text}-3-sm_75": "sm_75 has no level 3" for text in "abc"}
    timings = tmp_path / "timings.json"
    assert first.mlcbuild("matrix", ":all", f"--write-timings={timings}").code == 0
    as_if_quiet(timings)
    how = [f"--timings={timings}"] if has_timings else []
    # The second machine has built other targets before, the third one with another cache.
    second, third = machine(tmp_path, "second"), machine(tmp_path, "third")
    assert second.mlcbuild("build", ":c-*", "--jobs=1").code == 0
    assert third.mlcbuild("build", ":a-1-cpu", f"--disk-cache={tmp_path / 'other'}").code == 0
    shards = [
        build(second, "--shard=1/2", f"--disk-cache={tmp_path / 'empty'}", *how),
        build(third, "--shard=2/2", *how),
    ]
    assert Counter(label for shard in shards for label in shard["targets"]) == Counter(whole["targets"].keys())
    ran = Counter(key for shard in shards for key in kernels_run(shard))
    assert ran.keys() == kernels_run(whole)
    twice = sum(count - 1 for count in ran.values())
    assert twice <= MOST_KERNELS_TWICE * len(kernels_run(whole))
    assert all(len(shard["targets"]) >= 6 for shard in shards)
    # Whichever machine is asked, and whatever its history, it prints the same split.
    shown = {world.mlcbuild("matrix", ":all", "--shards=2", "--output=gitlab", *how).out for world in (first, second)}
    assert len(shown) == 1
