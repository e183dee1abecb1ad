"""`model` → `library`: TVM's ONNX frontend and its own `relax.build`; `graph` → `records`: what MetaSchedule measured.

Without records a library has the schedules that TVM has by default, with them the fastest that they hold, and nothing
is measured. Needs apache-tvm and onnx, and a library the linker `ld`. `target` is TVM's, with the processor that the
library is for, so that nothing is asked of the one that builds.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

_VERSION = 1  # of the file of records
_WORKLOADS, _RECORDS = "database_workload.json", "database_tuning_record.json"  # MetaSchedule's names
_TRIALS_AT_ONCE = 16


def run(*, model: Path, library: Path, target: Mapping[str, Any], records: Path | None = None) -> None:
    import tvm

    module, of_tvm = _imported(model), tvm.target.Target(dict(target))
    if records is not None:
        module = _scheduled(module, records, of_tvm, dict(target))
    built = tvm.compile(module, of_tvm)
    built.export_library(str(library), fcompile=_link)


def search(
    *, graph: Path, records: Path, target: Mapping[str, Any], trials: int, seed: int, candidate_seconds: float
) -> None:
    """Measure `trials` candidates of the graph's kernels on this machine, one after the other."""
    os.environ["TVM_NUM_THREADS"] = str(target["num-cores"])
    import onnx
    import tvm
    from tvm.s_tir import meta_schedule

    sizes = {
        size.dim_param
        for each in onnx.load(graph).graph.input
        for size in each.type.tensor_type.shape.dim
        if size.dim_param
    }
    if sizes:
        raise SystemExit(
            f"MetaSchedule takes fixed sizes alone, and {', '.join(sorted(sizes))} is open: name it in the onnx_model"
        )
    of_tvm, folder = tvm.target.Target(dict(target)), Path(os.environ["TMPDIR"], "search")
    # It is forked before there are threads, and forks for each candidate.
    measuring = _forked(lambda connection: _serve(connection, candidate_seconds))
    outcomes: list[str] = []
    builder, runner = _apart(measuring, outcomes)
    meta_schedule.relax_integration.tune_relax(
        _legal(_imported(graph), of_tvm),
        {},
        of_tvm,
        str(folder),
        max_trials_global=trials,
        num_trials_per_iter=min(trials, _TRIALS_AT_ONCE),
        builder=builder,
        runner=runner,
        cost_model="random",  # The others need xgboost or torch.
        measure_callbacks=[meta_schedule.measure_callback.AddToDatabase()],
        seed=seed + 1,  # It takes 0 for none.
    )
    document = {
        "version": _VERSION,
        "tvm": tvm.__version__,
        "target": dict(target),
        "workloads": _lines(folder / _WORKLOADS),
        "records": _lines(folder / _RECORDS),
    }
    if all(outcomes):
        told = f": {outcomes[0]}" if outcomes else ""
        raise SystemExit(f"none of {trials} candidates could be measured{told}")
    records.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _imported(model: Path) -> Any:
    import onnx
    import tvm
    from tvm.relax.frontend.onnx import from_onnx

    try:
        return from_onnx(onnx.load(model))
    except Exception as error:
        raise SystemExit(f"TVM {tvm.__version__} cannot import the model: {error}") from None


def _legal(module: Any, target: Any) -> Any:
    """The kernels that are searched for, as TVM's default pipeline makes them before it schedules."""
    import tvm
    from tvm import relax

    passes = [
        relax.transform.DecomposeOpsForInference(),
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FoldConstant(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
    ]
    with target, tvm.transform.PassContext(opt_level=3):
        return tvm.ir.transform.Sequential(passes)(module)


def _scheduled(module: Any, records: Path, target: Any, named: dict[str, Any]) -> Any:
    import tvm
    from tvm import relax

    try:
        document = json.loads(records.read_text(encoding="utf-8"))
        workloads, measured, wanted = document["workloads"], document["records"], document["target"]
        told, version = document["tvm"], document["version"]
    except (ValueError, KeyError, TypeError):
        raise SystemExit(f"{records.name} is no file of relax_tuning's records") from None
    if version != _VERSION or told != tvm.__version__:
        raise SystemExit(f"{records.name} has records of TVM {told}, and the environment has {tvm.__version__}")
    cpu = {name: value for name, value in wanted.items() if name != "num-cores"}
    if cpu != named:
        raise SystemExit(f"{records.name} has records for {wanted.get('mcpu')}, and cpu is {named['mcpu']}")
    folder = Path(os.environ["TMPDIR"], "records")
    folder.mkdir(exist_ok=True)
    for name, lines in ((_WORKLOADS, workloads), (_RECORDS, measured)):
        (folder / name).write_text("".join(json.dumps(each) + "\n" for each in lines), encoding="utf-8")
    legal = _legal(module, target)
    with target, tvm.transform.PassContext(opt_level=3):
        scheduled = relax.transform.MetaScheduleApplyDatabase(str(folder))(legal)
    known = [name for name in _kernels(scheduled) if "tirx.is_scheduled" in (scheduled[name].attrs or {})]
    if not known:
        raise SystemExit(f"{records.name} has none of the model's {len(_kernels(scheduled))} kernels: search again")
    return scheduled


def _kernels(module: Any) -> list[Any]:
    import tvm

    return [name for name, function in module.functions.items() if isinstance(function, tvm.tirx.PrimFunc)]


def _apart(measuring: Connection, outcomes: list[str]) -> tuple[Any, Any]:
    """A builder and a runner that leave both to `measuring`, in whose processes a candidate may crash or hang. TVM's
    own start Pythons that lack the environment. `outcomes` is told what was wrong with each, "" for nothing."""
    import tvm
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.builder import BuilderResult, PyBuilder
    from tvm.s_tir.meta_schedule.runner import PyRunner, PyRunnerFuture, RunnerResult

    taken: dict[str, dict[str, Any]] = {}

    @derived_object
    class Builder(PyBuilder):  # type: ignore[misc]
        def build(self, inputs: Any) -> Any:
            made = []
            for each in inputs:
                name = str(len(taken))
                taken[name] = {"module": str(tvm.ir.save_json(each.mod)), "target": str(tvm.ir.save_json(each.target))}
                made.append(BuilderResult(name, None))
            return made

    @derived_object
    class Measured(PyRunnerFuture):  # type: ignore[misc]
        def __init__(self, result: Any) -> None:
            super().__init__()
            self.found = result

        def done(self) -> bool:
            return True

        def result(self) -> Any:
            return self.found

    @derived_object
    class Runner(PyRunner):  # type: ignore[misc]
        def run(self, inputs: Any) -> Any:
            return [Measured(self.measured(each)) for each in inputs]

        def measured(self, candidate: Any) -> Any:
            arguments = [([int(size) for size in each.shape], str(each.dtype)) for each in candidate.args_info]
            measuring.send({**taken[candidate.artifact_path], "arguments": arguments})
            taken[candidate.artifact_path] = {}
            seconds, failure = measuring.recv()
            outcomes.append(failure)
            return RunnerResult(None, failure) if failure else RunnerResult([seconds], None)

    return Builder(), Runner()


def _forked(serve: Callable[[Connection], None]) -> Connection:
    """The connection to a process that serves until it is closed."""
    here, there = Pipe()
    if os.fork() == 0:
        here.close()
        try:
            serve(there)
        finally:
            os._exit(0)
    there.close()
    return here


def _serve(connection: Connection, seconds: float) -> None:
    while True:
        try:
            candidate = connection.recv()
        except EOFError:
            return
        connection.send(in_a_process(lambda: _measured(**candidate), seconds))  # noqa: B023


def in_a_process(measure: Callable[[], float], seconds: float) -> tuple[float | None, str]:
    """What `measure` returns in a fork of this process, or why it returned nothing in so many seconds."""
    reading, writing = Pipe(duplex=False)
    child = os.fork()
    if child == 0:
        try:
            writing.send((measure(), ""))
        except BaseException as error:
            writing.send((None, str(error) or type(error).__name__))
        finally:
            os._exit(0)
    writing.close()
    found: tuple[float | None, str]
    try:
        found = reading.recv() if reading.poll(seconds) else (None, f"it was not measured in {seconds:g} seconds")
    except EOFError:
        found = (None, "")
    reading.close()
    os.kill(child, signal.SIGKILL)  # It is not reaped yet, so this is nobody else.
    status = os.waitpid(child, 0)[1]
    if found == (None, ""):
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        return None, f"it ended by {signal.Signals(number).name if number else 'itself'}"
    return found


def _measured(*, module: str, target: str, arguments: Sequence[tuple[Sequence[int], str]]) -> float:
    """The seconds of a candidate's call, compiled and called in this process."""
    import numpy as np
    import tvm

    compiled = tvm.compile(tvm.ir.load_json(module), target=tvm.ir.load_json(target)).jit()
    random = np.random.default_rng(0)
    given = [tvm.runtime.tensor(random.random(shape).astype(dtype)) for shape, dtype in arguments]
    timed = compiled.time_evaluator("main", tvm.cpu(), number=1, repeat=3, min_repeat_ms=10)
    # The fastest of three: what else runs on the machine only ever adds to it.
    return min(float(seconds) for seconds in timed(*given).results)


def _lines(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def _link(file: str, objects: Sequence[str], options: Sequence[str] | None = None, **_: Any) -> None:
    """TVM would call a C++ compiler for this, which adds what is the machine's own."""
    linker = shutil.which("ld")
    if linker is None:
        raise SystemExit("there is no linker: install binutils")
    command = [linker, "-shared", "--build-id=none", "--hash-style=gnu", "-o", file, *objects, *(options or ())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the library cannot be linked: {done.stderr.strip()}")
