"""ListCandidates, LinkKernel and TuneKernel: what is measured of candidates that are right, wrong, crash or hang."""

from __future__ import annotations

import json
import signal
import struct
from pathlib import Path
from typing import Any

import pytest
import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler import ir
from mlcbuild.compiler.backends.cpu.link import LINKING
from mlcbuild.compiler.backends.cpu.schedule import SCHEDULING
from mlcbuild.compiler.kernels.building import replace_body, statement
from mlcbuild.compiler.passes.canonical_kernel import canonicalize
from mlcbuild.compiler.stages import compile_kernel, link_kernel, list_candidates, schedule_kernel, tune_kernel
from mlcbuild.errors import LocalEnvironmentError, StageError
from mlcbuild.runtime.measuring import timing
from mlcbuild.runtime.measuring.candidate_list import CandidateList
from mlcbuild.runtime.measuring.child import measure
from mlcbuild.runtime.measuring.measurement import Measurement, from_json
from tests.compiler.kernel_running import packed_product
from tests.compiler.pipeline import CPU_TARGET

SIZES = [{"v0": 3}]


class Bench:
    """A kernel's files below a folder."""

    def __init__(self, folder: Path, func: tirx.PrimFunc) -> None:
        self.folder = folder
        kernel = canonicalize(func)
        self.name = kernel.name
        (folder / "kernel.json").write_bytes(kernel.data)
        list_candidates.run(
            kernel=folder / "kernel.json",
            candidates=folder / "candidates.json",
            target=dict(CPU_TARGET),
            backend=SCHEDULING,
        )
        self.listed = CandidateList.read(json.loads((folder / "candidates.json").read_text()))

    def library(self, name: str, shape: Any = None, body: Any = None) -> Path:
        """The kernel with a shape, or with another body than its own, as a library."""
        scheduled = self.folder / f"{name}.json"
        schedule_kernel.run(
            kernel=self.folder / "kernel.json",
            scheduled=scheduled,
            signature=self.folder / f"{name}.signature.json",
            target=dict(CPU_TARGET),
            optimized=True,
            backend=SCHEDULING,
            tuned=None if shape is None else {"rule": self.listed.rule, "shape": shape, "record": ""},
        )
        if body is not None:
            module = ir.load_module(scheduled)
            ((variable, func),) = module.functions_items()
            module[variable] = replace_body(func, statement(body))
            ir.save_module(module, scheduled)
        compile_kernel.run(scheduled=scheduled, object=self.folder / f"{name}.o", target=dict(CPU_TARGET))
        library = self.folder / f"{name}.so"
        link_kernel.run(objects=[self.folder / f"{name}.o"], library=library, target=dict(CPU_TARGET), backend=LINKING)
        return library

    def tune(self, candidate: Path, untuned: Path, *, sizes: Any = None, seconds: float = 60.0) -> list[Measurement]:
        tune_kernel.run(
            candidate=candidate,
            untuned=untuned,
            candidates=self.folder / "candidates.json",
            measured=self.folder / "measured.json",
            sizes=sizes if sizes is not None else SIZES,
            seconds=seconds,
        )
        return list(from_json((self.folder / "measured.json").read_bytes()))


def _calls(function: str) -> Any:
    return lambda: T.evaluate(T.call_extern("int32", function))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("bench"), packed_product(64, 256, None))


@pytest.fixture(scope="module")
def untuned(bench: Bench) -> Path:
    return bench.library("untuned")


def test_a_candidate_is_measured_beside_the_default(bench: Bench, untuned: Path) -> None:
    assert bench.listed.rule == "cpu.panels"
    assert bench.listed.sizes == ({"v0": 4}, {"v0": 32}, {"v0": 128})
    assert bench.listed.shapes[0] == {"rows": 16, "vectors": 6, "places": 1024}
    candidate = bench.library("candidate", bench.listed.shapes[-1])
    assert candidate.read_bytes() != untuned.read_bytes()
    found = bench.tune(candidate, untuned, sizes=[{"v0": 3}, {"v0": 40}])
    assert [dict(each.sizes) for each in found] == [{"v0": 3}, {"v0": 40}]
    for each in found:
        assert each.outcome == "measured", each.message
        assert 0 < each.seconds < 1
        assert 0 < each.untuned_seconds < 1
        assert each.calls >= 5
        assert each.device.name
        assert each.device.threads >= 1
    assert found[1].seconds > found[0].seconds, "ten times the work takes longer"


def test_a_candidate_that_computes_something_else_is_wrong(bench: Bench, untuned: Path) -> None:
    (found,) = bench.tune(bench.library("wrong", body=lambda: T.evaluate(T.int32(0))), untuned)
    assert found.outcome == "wrong"
    assert "of the largest" in found.message
    assert found.seconds == 0


def test_a_candidate_that_crashes_costs_itself_alone(bench: Bench, untuned: Path) -> None:
    (found,) = bench.tune(bench.library("crash", body=_calls("abort")), untuned, sizes=[{"v0": 3}, {"v0": 4}])
    assert (found.outcome, found.message) == ("crashed", "it was killed by SIGABRT")
    assert bench.tune(untuned, untuned)[0].outcome == "measured"


def test_a_candidate_that_hangs_is_stopped(bench: Bench, untuned: Path) -> None:
    (found,) = bench.tune(bench.library("hang", body=_calls("pause")), untuned, seconds=1.5)
    assert (found.outcome, found.message) == ("timed out", "it took more than 1.5 s")


def test_a_library_that_does_not_load_is_told(bench: Bench, untuned: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.so"
    broken.write_bytes(untuned.read_bytes()[:1000])
    (found,) = bench.tune(broken, untuned)
    assert found.outcome == "crashed"
    assert found.message


def test_no_candidate_is_to_blame_for_what_the_machine_or_the_default_shape_does(
    bench: Bench, untuned: Path, tmp_path: Path
) -> None:
    good = bench.library("good", bench.listed.shapes[1])
    for_a_gpu, broken = tmp_path / "gpu.so", tmp_path / "broken.so"
    for_a_gpu.write_bytes(untuned.read_bytes() + struct.pack("<Q", len("cuda")) + b"cuda")
    broken.write_bytes(untuned.read_bytes()[:1000])
    with pytest.raises((LocalEnvironmentError, StageError), match=r"CUDA|cannot be measured here"):
        bench.tune(good, for_a_gpu)
    with pytest.raises(StageError, match="default shape cannot be measured here: "):
        bench.tune(good, broken)
    with pytest.raises(StageError, match="default shape cannot be measured here: it was killed by SIGABRT"):
        bench.tune(good, bench.library("aborts", body=_calls("abort")))
    with pytest.raises(StageError, match=r"default shape cannot be measured here: it took more than 2 s"):
        bench.tune(good, bench.library("pauses", body=_calls("pause")), seconds=2)


def test_who_is_killed_for_memory_is_not_recorded(bench: Bench, untuned: Path) -> None:
    killed = bench.library("killed", body=lambda: T.evaluate(T.call_extern("int32", "raise", int(signal.SIGKILL))))
    with pytest.raises(LocalEnvironmentError, match="SIGKILL"):
        bench.tune(killed, untuned)


@pytest.mark.parametrize("sentence", ["CUDA_ERROR_OUT_OF_MEMORY", "std::bad_alloc", "Cannot allocate memory"])
def test_what_says_that_there_is_no_memory_is_not_recorded(
    bench: Bench, untuned: Path, monkeypatch: pytest.MonkeyPatch, sentence: str
) -> None:
    """The candidate's library is not loaded, for which the loader has a sentence of its own."""
    good, load = bench.library("good", bench.listed.shapes[1]), timing.CandidateTimer._load

    def loaded(timer: timing.CandidateTimer, library: Path) -> Any:
        if library == good:
            raise RuntimeError(f"{library} cannot be loaded: {sentence}")
        return load(timer, library)

    monkeypatch.setattr(timing.CandidateTimer, "_load", loaded)
    with pytest.raises(LocalEnvironmentError, match=sentence):
        bench.tune(good, untuned)


def test_what_comes_after_one_that_is_killed_for_memory_is_measured(bench: Bench, untuned: Path) -> None:
    good = bench.library("good", bench.listed.shapes[1])
    killed = bench.library("killed", body=lambda: T.evaluate(T.call_extern("int32", "raise", int(signal.SIGKILL))))
    found = measure(
        [good, killed, good], untuned, kernel=bench.name, arguments=bench.listed.arguments, sizes=SIZES, seconds=30
    )
    first, fault, last = found
    assert isinstance(fault, LocalEnvironmentError)
    assert "SIGKILL" in fault.message
    assert not isinstance(first, LocalEnvironmentError)
    assert not isinstance(last, LocalEnvironmentError)
    assert first[0].outcome == last[0].outcome == "measured"


def test_what_comes_after_a_candidate_that_failed_is_measured_all_the_same(bench: Bench, untuned: Path) -> None:
    good = bench.library("good", bench.listed.shapes[1])
    bodies = {"ends": _calls("abort"), "wrongly": lambda: T.evaluate(T.int32(0)), "waits": _calls("pause")}
    failing = [bench.library(name, body=body) for name, body in bodies.items()]
    found = measure(
        [good, failing[0], good, failing[1], failing[2], good],
        untuned,
        kernel=bench.name,
        arguments=bench.listed.arguments,
        sizes=[{"v0": 3}, {"v0": 5}],
        seconds=3.0,
    )
    outcomes = [[each.outcome for each in one] for one in found if not isinstance(one, LocalEnvironmentError)]
    well = ["measured", "measured"]
    assert outcomes == [well, ["crashed"], well, ["wrong"], ["timed out"], well]


class _Kept:
    """Calls that a processor keeps and makes again; of `forgotten` kernels it makes none."""

    forgotten = 0

    def __init__(self, _device: Any, calls: Any) -> None:
        self._calls = calls
        self.forgets = self.forgotten > 0
        type(self).forgotten -= self.forgets

    def play(self) -> None:
        if not self.forgets:
            self._calls()

    def __enter__(self) -> _Kept:
        return self

    def __exit__(self, *_error: object) -> None:
        pass


@pytest.mark.parametrize("forgotten", [0, 1])
def test_recorded_calls_are_timed_if_they_compute_the_same(
    bench: Bench, untuned: Path, monkeypatch: pytest.MonkeyPatch, forgotten: int
) -> None:
    """A device that plays calls, of which it forgets some."""
    monkeypatch.setattr(_Kept, "forgotten", forgotten)
    monkeypatch.setattr(timing, "RECORDED", {"cpu": _Kept})
    timer = timing.CandidateTimer(untuned, kernel=bench.name, arguments=bench.listed.arguments)
    found = timer.time(bench.library("played", bench.listed.shapes[2]), {"v0": 3})
    assert found.outcome == "measured"
    assert found.message.startswith("calls are not recorded: played, they are" if forgotten else "")
    assert bool(found.message) is bool(forgotten)


def test_a_kernel_that_leaves_no_choice_has_no_candidates(tmp_path: Path) -> None:
    func = packed_product(24, 160, 1).with_attr("tirx.is_scheduled", True)
    assert Bench(tmp_path, func).listed.shapes == ()


def test_a_file_that_lists_no_candidates_is_told(bench: Bench, untuned: Path, tmp_path: Path) -> None:
    for text in ("{}", '{"version": 2}', "[]", "x"):
        (tmp_path / "c.json").write_text(text)
        with pytest.raises(StageError, match=r"c\.json"):
            tune_kernel.run(
                candidate=untuned,
                untuned=untuned,
                candidates=tmp_path / "c.json",
                measured=tmp_path / "m.json",
                sizes=SIZES,
                seconds=1,
            )
