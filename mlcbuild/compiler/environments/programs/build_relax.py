"""`model` → `library`: TVM's ONNX frontend and its own `relax.build`; `model` → `records`: what MetaSchedule measured.

Without records a library has the schedules that TVM has by default, with them the fastest that they hold, and nothing
is measured. Needs apache-tvm and onnx, and a library the linker `ld`. `target` is TVM's, with the processor that the
library is for, so that nothing is asked of the one that builds.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
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


def search(*, model: Path, records: Path, target: Mapping[str, Any], trials: int, seed: int) -> None:
    """Measure `trials` candidates of the model's kernels on this machine, one after the other."""
    os.environ["TVM_NUM_THREADS"] = str(target["num-cores"])
    import onnx
    import tvm
    from tvm.s_tir import meta_schedule

    graph = onnx.load(model).graph
    sizes = {size.dim_param for each in graph.input for size in each.type.tensor_type.shape.dim if size.dim_param}
    if sizes:
        raise SystemExit(
            f"MetaSchedule takes fixed sizes alone, and {', '.join(sorted(sizes))} is open: name it in the onnx_model"
        )
    of_tvm, folder = tvm.target.Target(dict(target)), Path(os.environ["TMPDIR"], "search")
    builder, runner = _in_process(tvm)
    meta_schedule.relax_integration.tune_relax(
        _legal(_imported(model), of_tvm),
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
    if not document["records"]:
        raise SystemExit(f"none of {trials} candidates could be measured")
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


def _in_process(tvm: Any) -> tuple[Any, Any]:
    """A builder and a runner that keep everything here. TVM's own start Pythons that lack the environment."""
    import numpy as np
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.builder import BuilderResult, PyBuilder
    from tvm.s_tir.meta_schedule.runner import PyRunner, PyRunnerFuture, RunnerResult

    built: dict[str, Any] = {}

    @derived_object
    class Builder(PyBuilder):  # type: ignore[misc]
        def build(self, inputs: Any) -> Any:
            made = []
            for each in inputs:
                name = str(len(built))
                try:
                    built[name] = tvm.compile(each.mod, target=each.target).jit()
                    made.append(BuilderResult(name, None))
                except Exception as error:
                    made.append(BuilderResult(None, str(error)))
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
            try:
                module = built.pop(candidate.artifact_path)
                random = np.random.default_rng(0)
                arguments = [
                    tvm.runtime.tensor(random.random([int(size) for size in each.shape]).astype(str(each.dtype)))
                    for each in candidate.args_info
                ]
                timed = module.time_evaluator("main", tvm.cpu(), number=1, repeat=3, min_repeat_ms=10)
                # The fastest of three: what else runs on the machine only ever adds to it.
                return RunnerResult([min(float(seconds) for seconds in timed(*arguments).results)], None)
            except Exception as error:
                return RunnerResult(None, str(error))

    return Builder(), Runner()


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
