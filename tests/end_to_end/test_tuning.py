"""`mlcbuild tune` on a small library: what is measured, nothing twice, and what is chosen is built everywhere."""

from __future__ import annotations

import json
import re
import shutil
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from mlcbuild.tuning.record import Outcome, Record
from mlcbuild.tuning.store import RecordStore
from tests.compiler.tiny_models import TINY
from tests.end_to_end.kernel_cache import KernelCache
from tests.end_to_end.world import World, wait_until
from tests.remote import http_server
from tests.tuning.logs import log_of

pytestmark = pytest.mark.slow

BUILD_FILE = """\
[workspace]
name = "example"

[[model]]
name = "one"
config = "one.json"

[[model]]
name = "two"
config = "two.json"

[[model_library]]
name = "a"
model = ":one"
quantization = "q4f32_1"
platform = "@platforms//:x86-64-v2"
tuning = "4 trials"

[[model_library]]
name = "b"
model = ":two"
quantization = "q4f32_1"
platform = "@platforms//:x86-64-v2"
tuning = "cached"
"""


def _world(folder: Path, workers: Mapping[str, str]) -> World:
    """Two models of the same shapes; the norms of the second have another epsilon."""
    world = World(folder)
    world.environment |= workers
    world.write("BUILD.toml", BUILD_FILE)
    world.write("one.json", json.dumps(TINY))
    world.write("two.json", json.dumps({**TINY, "rms_norm_eps": 1e-6}))
    return world


def _records(world: World) -> tuple[Record, ...]:
    store = RecordStore(root=world.cache / "mlcbuild")
    return tuple(record for platform in store.platforms() for record in store.records(platform))


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory, warm_workers: Mapping[str, str]) -> World:
    """A workspace whose library a was tuned with four trials."""
    world = _world(tmp_path_factory.mktemp("tuned"), warm_workers)
    done = world.mlcbuild("tune", "//:a", "--output=json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert document["trials"] == 4, "as the target says"
    assert len(document["kernels"]) > 4
    return world


def test_trials_become_records_that_say_where_they_were_made(tuned: World) -> None:
    found = _records(tuned)
    assert len({(record.kernel, record.shape) for record in found}) == 4
    for record in found:
        assert record.outcome is Outcome.MEASURED, record.message
        assert record.device
        assert record.threads >= 1
        assert "apache-tvm" in record.tools
        assert record.rule in ("cpu.gemv:2", "cpu.matmul:2", "cpu.panels", "cpu.paged_prefill", "cpu.ragged_prefill")
    stats = tuned.mlcbuild("tune", "stats", "--output=json")
    (platform,) = json.loads(stats.out)["platforms"]
    assert platform["records"] == len(found)


def test_builds_of_a_tuner_are_in_the_history(tuned: World) -> None:
    builds = json.loads(tuned.mlcbuild("log", "--output=json").out)
    assert {tuple(build["arguments"]) for build in builds} == {("tune", "//:a", "--output=json")}
    assert {build["exit_code"] for build in builds} == {0}
    actions = tuned.mlcbuild("log", "what-ran", "--output=json")
    ran = [action["mnemonic"] for action in json.loads(actions.out)["actions"]]
    assert ran.count("TuneKernel") == 4
    assert tuned.mlcbuild("log", "--target", "//:a").out.splitlines()[1].split()[0] == "1"
    assert tuned.mlcbuild("show", "//:a", "--build=1").code == 0


def test_nothing_is_measured_twice_nor_for_another_model_of_the_shapes(tuned: World, tmp_path: Path) -> None:
    before = set(_records(tuned))
    other = shutil.copytree(tuned.cache, tmp_path / "cache", symlinks=True)
    done = tuned.mlcbuild("tune", "//:b", "--trials", "2", "--output=json", XDG_CACHE_HOME=str(other))
    assert done.code == 0, done.err
    kernels = {each["kernel"]: each for each in json.loads(done.out)["kernels"]}
    shared = {record.kernel for record in before} & kernels.keys()
    assert len(shared) == 4, "the products of both models are the same kernels"
    after = set(RecordStore(root=other / "mlcbuild").records(next(iter(before)).platform))
    assert before < after
    new = {(record.kernel, record.shape) for record in after - before}
    assert len(new) == 2
    assert new.isdisjoint((record.kernel, record.shape) for record in before)


def _copied(tuned: World, folder: Path) -> tuple[World, World, set[Record]]:
    """Two workspaces with a cache of their own, in which all is compiled that the first trials took; its records."""
    cache = shutil.copytree(tuned.cache, folder / "cache", symlinks=True)
    one, other = (World(folder, name=name, cache=cache) for name in ("one", "other"))
    for world in (one, other):
        world.environment = {**tuned.environment, **world.environment}
        for name in ("BUILD.toml", "one.json", "two.json"):
            shutil.copy(tuned.root / name, world.root / name)
    return one, other, set(_records(one))


def test_a_tuner_that_is_interrupted_goes_on_where_it_was(tuned: World, tmp_path: Path) -> None:
    world, _, before = _copied(tuned, tmp_path)
    with http_server.running() as server:
        first = world.start("tune", "//:a", "--trials", "50", "--remote", server.address, "--remote-upload", "results")
        wait_until(lambda: len(_records(world)) > len(before), "a record")
        first.send_signal(signal.SIGINT)
        _out, err = first.communicate(timeout=120)
        assert first.returncode == 8, err
        kept = set(_records(world))
        assert before < kept
        with log_of(tmp_path / "other", server.address) as log:
            assert set(replace(log, platform=next(iter(kept)).platform).read()) == kept, "what was measured is sent"
    second = world.process("tune", "//:a", "--trials", "2", "--output=json")
    assert second.code == 0, second.err
    after = set(_records(world))
    assert kept < after, "no record is lost"
    new = {(record.kernel, record.shape) for record in after - kept}
    assert len(new) == json.loads(second.out)["trials"] == 2
    assert new.isdisjoint((record.kernel, record.shape) for record in kept), "no trial is made again"


def test_two_tuners_at_once_lose_no_record_and_repeat_no_trial(tuned: World, tmp_path: Path) -> None:
    *worlds, before = _copied(tuned, tmp_path)
    world = worlds[0]
    both = [each.start("tune", "//:a", "--trials", "2", "--output=json") for each in worlds]
    trials = 0
    for process in both:
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        trials += json.loads(out)["trials"]
    after = _records(world)
    assert before < set(after)
    new = [(record.kernel, record.shape, record.sizes) for record in set(after) - before]
    assert len(new) == len(set(new)), "each was measured by one of them"
    assert len({(kernel, shape) for kernel, shape, _ in new}) == trials == 4


def test_a_tuned_library_has_the_same_bytes_from_exported_records_elsewhere(
    tuned: World, tmp_path: Path, warm_workers: Mapping[str, str], kernel_cache: KernelCache
) -> None:
    measured = _records(tuned)[0]
    pinned = tmp_path / "records.jsonl"
    # What is chosen of noise is not asserted: one record says that a shape takes half of the time.
    chosen = Record(**{**vars(measured), "seconds": 0.5, "untuned_seconds": 1.0, "spread": 0.0})
    libraries = []
    for number, lines in enumerate(("", chosen.line(), chosen.line())):
        world = _world(tmp_path / str(number), warm_workers)
        pinned.write_text(lines)
        assert world.mlcbuild("tune", "import", str(pinned)).code == 0
        with kernel_cache.used_by(world.root, world.cache):
            done = world.mlcbuild("build", "//:b")
            assert done.code == 0, done.err
        libraries.append(world.output("b/b.so").read_bytes())
        assert "TuneKernel" not in world.mlcbuild("log", "what-ran").out
    assert libraries[1] == libraries[2]
    assert libraries[0] != libraries[1]


def test_candidates_go_to_a_machine_without_a_workspace_and_come_back_as_records(tuned: World, tmp_path: Path) -> None:
    folder = tmp_path / "candidates"
    done = tuned.mlcbuild("tune", "candidates", "//:a", "--trials", "3", "--to", str(folder))
    assert done.code == 0, done.err
    # Which kernels they are of is a matter of time.
    assert re.fullmatch(re.escape(str(folder)) + r": 3 candidates of [123] kernels?\n", done.out)
    again = tuned.mlcbuild("tune", "candidates", "//:a", "--to", str(folder))
    assert again.code == 2
    assert "is not empty" in again.err
    elsewhere = World(tmp_path / "elsewhere")
    measured = elsewhere.process("tune", "measure", str(folder), "--output=json")
    assert measured.code == 0, measured.err
    assert json.loads(measured.out)["outcomes"] == {
        "measured": 3, "wrong": 0, "crashed": 0, "timed out": 0, "not built": 0,
    }  # fmt: skip
    with (folder / "measurements.jsonl").open("r+") as file:
        lines = file.readlines()
        file.seek(0)
        file.truncate()
        file.write("".join(lines[:-1]) + lines[-1][:30])
    assert json.loads(elsewhere.process("tune", "measure", str(folder), "--output=json").out) | {"outcomes": 0} == {
        "folder": str(folder), "measured": 1, "known": 2, "outcomes": 0,
    }  # fmt: skip
    before = len(_records(tuned))
    assert tuned.mlcbuild("tune", "import", str(folder)).code == 0
    assert len(_records(tuned)) > before
    assert {record.outcome for record in _records(tuned)} == {Outcome.MEASURED}
