"""A model is observed by actions that are kept one by one, for whoever needs them."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from tests.end_to_end.calibrated import STATISTICS, statistics_in, write_model, write_targets
from tests.end_to_end.kernel_cache import KernelCache
from tests.end_to_end.world import Done, World

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory, kernel_cache: KernelCache) -> World:
    """A workspace whose statistics are built, one action after the other."""
    world = World(tmp_path_factory.mktemp("observed"))
    write_model(world)
    write_targets(world, STATISTICS)
    with kernel_cache.used_by(world.root, world.cache):
        done = world.build(":statistics")
        assert done.code == 0, done.err
    return world


def ran(done: Done) -> list[str]:
    """The mnemonics of the actions that a build ran, for one with `--verbose`."""
    assert done.code == 0, done.err
    return sorted(re.findall(r"^\[\d+/\d+\] //:\S+ (\w+)(?= (?:observation )?\d* ?· \d| · )", done.err, re.MULTILINE))


_WEIGHTS = "".join(
    f'\n[[quantized_weights]]\nname = "{scheme}"\nmodel = ":tiny"\nquantization = "{scheme}"\ncalibration = ":text"\n'
    for scheme in ("q4f16_1", "q4f32_1")
)
_GPTQ = (
    '\n[[quantized_weights]]\nname = "gptq"\nmodel = ":tiny"\nquantization = "q4f16_1"\n'
    'calibration = ":text"\ncalibration_method = "gptq"\n'
)


def test_schemes_and_methods_share_what_is_observed(observed: World) -> None:
    write_targets(observed, STATISTICS, _WEIGHTS)
    done = observed.build("--verbose", ":q4f16_1", ":q4f32_1")
    assert ran(done).count("Quantize") == 2
    assert not {"Observe", "MergeStatistics", "SampleTexts", "CompileKernel"}.intersection(ran(done))


def test_two_workers_make_the_bytes_of_one(observed: World, tmp_path: Path, kernel_cache: KernelCache) -> None:
    targets = (":statistics", ":q4f16_1", ":gptq")
    write_targets(observed, STATISTICS, _WEIGHTS, _GPTQ)
    assert observed.build(*targets).code == 0
    other = World(tmp_path, name="elsewhere")
    write_model(other)
    write_targets(other, STATISTICS, _WEIGHTS, _GPTQ)
    kernel_cache.lend(other.cache)
    done = other.mlcbuild("build", "--jobs", "2", *targets)
    assert done.code == 0, done.err
    assert statistics_in(other.output("statistics")) == statistics_in(observed.output("statistics"))
    awq, gptq = (
        [(world.output(name) / "params_shard_0.bin").read_bytes() for world in (observed, other)]
        for name in ("q4f16_1", "gptq")
    )
    assert (awq[0], gptq[0]) == (awq[1], gptq[1])
    assert awq[0] != gptq[0]


def test_a_sample_that_is_added_reruns_its_shard_and_the_merge(observed: World) -> None:
    write_targets(observed, STATISTICS, samples=13)
    done = observed.build("--verbose", ":statistics")
    assert ran(done) == ["MergeStatistics", "Observe", "SampleTexts"]
    assert done.actions["executed_local"] == 3
    index = json.loads((observed.output("statistics") / "statistics.json").read_text())
    assert index["tokens"] == 13 * 32


def test_a_build_that_is_killed_goes_on_with_the_shards_that_are_left(observed: World) -> None:
    write_targets(observed, STATISTICS, seed=7)
    process = observed.start("build", "--jobs", "1", "--verbose", ":statistics")
    assert process.stderr is not None
    ended = 0
    for line in process.stderr:
        ended += re.match(r"\[\d+/\d+\] //:statistics Observe \d ", line) is not None
        if ended == 2:  # the result of the first one is kept by now
            break
    process.send_signal(signal.SIGKILL)
    process.communicate()
    done = observed.build("--verbose", ":statistics")
    assert ran(done) in (["MergeStatistics", "Observe", "Observe"], ["MergeStatistics", "Observe"])


def test_mistakes_are_told_before_anything_runs(tmp_path: Path) -> None:
    world = World(tmp_path)
    write_model(world)
    world.write("empty.txt", " \n")
    world.write("latin.txt", b"caf\xe9")
    write_targets(world, STATISTICS, samples=2, texts=("text.txt", "empty.txt", "latin.txt"))
    done = world.build("//...")
    assert done.code == 7
    assert "empty.txt is empty: calibration takes a text in //:text" in done.err
    assert "latin.txt is not UTF-8 text: byte 3 in //:text" in done.err
    assert "2 samples do not fill 3 shards in //:text" in done.err
    assert not world.store.exists()
