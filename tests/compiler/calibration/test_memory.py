"""One layer's weights are in memory at a time, however many there are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mlcbuild.compiler.calibration.samples import SampleShard, write_samples
from tests.compiler.observing import observed_model
from tests.compiler.tiny_models import TINY, checkpoint
from tests.end_to_end.world import PROJECT

_CONFIG = {**TINY, "hidden_size": 512, "intermediate_size": 2048, "vocab_size": 300}
_PROGRAM = r"""\
import re, sys
from pathlib import Path
from mlcbuild.compiler.stages import observe

folder = Path(sys.argv[1])
observe.run(
    samples=folder / "samples.json",
    shards=sorted((folder / "shards").iterdir()),
    parameters=folder / "parameters.json",
    library=folder / "lib.so",
    observation=folder / "observation.json",
    statistics=folder / "statistics",
)
print(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])  # not that of whoever forked
"""


def _peak_bytes(layers: int, folder: Path, kernel_store: Path) -> int:
    config = {**_CONFIG, "num_hidden_layers": layers}
    observed_model(config, checkpoint(config), folder, kernel_store=kernel_store)
    write_samples(SampleShard(samples=(tuple(range(100)),)), folder / "samples.json")
    command = [sys.executable, "-c", _PROGRAM, str(folder)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    return 1024 * int(done.stdout.splitlines()[-1])


@pytest.mark.exhaustive
def test_memory_does_not_grow_with_the_number_of_layers(tmp_path: Path, kernel_store: Path) -> None:
    few, many = (_peak_bytes(layers, tmp_path / str(layers), kernel_store) for layers in (2, 26))
    layer = 4 * (512 * (2 * 512 + 2 * 256) + 3 * 512 * 2048)  # bytes of its matrices
    assert many - few < 3 * layer, f"{few} and {many} bytes"
