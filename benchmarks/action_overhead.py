"""What an action costs beyond its work, against a bare `subprocess`: `python -m benchmarks.action_overhead`.

It compares `subprocess.run` of /bin/touch with an action that runs the same through the local executor: its inputs are
laid out, it is started and awaited, and its output is stored. Then it compares `subprocess.run` of a Python that writes
a file with an action that calls a stage which does the same. They run one at a time, in turn in one process, so that a
busy machine slows all of them equally. Last, it compares starting a fork server with taking one from the pool.
"""

from __future__ import annotations

import argparse
import queue
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.disk import DiskStore
from mlcbuild.engine.action import ExecutionRequirements, StageCall, ToolCall
from mlcbuild.engine.executor import ExecutionOutcome, ExecutionRequest
from mlcbuild.execution import environment
from mlcbuild.execution.fork_client import ForkClient
from mlcbuild.execution.local import LocalExecutor
from mlcbuild.execution.preload import HIDDEN
from mlcbuild.execution.server_pool import PooledForkClient, shut_down
from mlcbuild.toolchains.entries.tvm import TOOLCHAIN as TVM

_PROGRAM = "import sys; open(sys.argv[1], 'w').write('x')"
_STAGE = "def run(*, out):\n    out.write_text('x')\n"


class Runner:
    """An executor of one slot, and seconds from giving it an action to its outcome."""

    def __init__(self, folder: Path, store: DiskStore, stages: Path, *, sandbox: bool) -> None:
        self._outcomes: queue.SimpleQueue[ExecutionOutcome] = queue.SimpleQueue()
        self._executor = LocalExecutor(
            store,
            jobs=1,
            scratch=folder / f"scratch-{sandbox}",
            module_paths=(stages,),
            sandbox=sandbox,
            hidden=(store.root, Path("~").expanduser()),
        )
        self._executor.start(self._outcomes.put)

    def seconds(self, command: StageCall | ToolCall) -> float:
        request = ExecutionRequest(
            identifier="//:it",
            mnemonic="It",
            command=command,
            inputs=(),
            outputs=("out.txt",),
            environment=(),
            requirements=ExecutionRequirements(),
            allowed_modules=frozenset({"stage"}) if isinstance(command, StageCall) else frozenset(),
        )
        began = time.perf_counter()
        self._executor.submit(request)
        outcome = self._outcomes.get()
        seconds = time.perf_counter() - began
        assert outcome.outputs, outcome
        return seconds

    def close(self) -> None:
        self._executor.close()


def bare_seconds(folder: Path, *command: str) -> float:
    began = time.perf_counter()
    subprocess.run([*command, "out.txt"], cwd=folder, check=True)
    return time.perf_counter() - began


def measure(folder: Path, rounds: int) -> Mapping[str, list[float]]:
    """Milliseconds by what was run."""
    (folder / "stages").mkdir()
    (folder / "stages/stage.py").write_text(_STAGE)
    store = DiskStore(folder / "cache", DigestFunction.BLAKE3)
    runners = {sandbox: Runner(folder, store, folder / "stages", sandbox=sandbox) for sandbox in (False, True)}
    tool = ToolCall(arguments=("/bin/touch", "out.txt"))
    stage = StageCall(function="stage:run", outputs=(("out", "out.txt"),))
    measured: dict[str, Callable[[], float]] = {
        "bare touch": lambda: bare_seconds(folder, "/bin/touch"),
        "tool": lambda: runners[False].seconds(tool),
        "tool, sandboxed": lambda: runners[True].seconds(tool),
        "bare Python": lambda: bare_seconds(folder, sys.executable, "-I", "-c", _PROGRAM),
        "stage": lambda: runners[False].seconds(stage),
        "stage, sandboxed": lambda: runners[True].seconds(stage),
    }
    figures: dict[str, list[float]] = {name: [] for name in measured}
    for number in range(-3, rounds):
        for name, run in measured.items():
            seconds = run()
            if number >= 0:  # the first few start servers and fill caches
                figures[name].append(1000 * seconds)
    for runner in runners.values():
        runner.close()
    return figures


def server_seconds(folder: Path) -> tuple[float, float]:
    """From wanting a compiler's server to having it: started, and from the pool."""
    variables = environment.of_server()

    def ready(make: Callable[[], ForkClient]) -> float:
        began = time.perf_counter()
        server = make()
        assert "ready" in server.hello()
        seconds = time.perf_counter() - began
        server.close()
        return seconds

    pool = folder / "pool"
    cold = ready(lambda: ForkClient(preload=TVM.preload, hide=HIDDEN, log=folder / "log", variables=variables))
    ready(lambda: PooledForkClient(preload=TVM.preload, hide=HIDDEN, variables=variables, directory=pool))
    warm = ready(lambda: PooledForkClient(preload=TVM.preload, hide=HIDDEN, variables=variables, directory=pool))
    shut_down(pool)
    return cold, warm


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="overhead-") as name:
        figures = measure(Path(name), rounds)
        cold, warm = server_seconds(Path(name))
    print(f"{'ms':18}{'least':>9}{'median':>9}{'90 %':>9}   median above the bare one")
    bare = 0.0
    for what, values in figures.items():
        median, ninth = statistics.median(values), statistics.quantiles(values, n=10)[-1]
        bare = median if what.startswith("bare") else bare
        print(f"{what:18}{min(values):9.2f}{median:9.2f}{ninth:9.2f}   {median - bare:6.2f}")
    print(f"a server that holds tvm: {cold:.2f} s started, {1000 * warm:.1f} ms from the pool")
    return 0


if __name__ == "__main__":
    sys.exit(main())
