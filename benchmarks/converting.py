"""Converting a large checkpoint: a whole build by one worker and by two, against one process that does the arithmetic.

    python -m benchmarks.converting [--model NAME] [--layers N] [--quantization NAME] [--rounds N] [--folder DIR]

Method. It writes a synthetic checkpoint of the model's shape, in bfloat16, with as many of its layers as `--layers`
says; all of them are 16 GB for 8B, and a round takes two and a half times that on the disk, which is told before
anything is written. In turn, `--rounds` times, the checkpoint becomes weights

- by one process that reads each tensor, takes its SHA-256, makes what Quantize stores by the same encoder, and writes
  it ("plain"),
- by `mlcbuild build --jobs=1` from an empty cache, as a whole command, and by `--jobs=2`,
- and by a build after the bytes of one tensor were changed.

Whether all have stored the same number of bytes is checked. It prints the seconds of all rounds, ratios of their
medians, how many actions ran for the changed tensor, and the memory of the largest action, beside twice the largest
tensor in float32 and a shard, which it should stay below. The machine must be quiet, and the files are in the operating
system's cache as far as they fit, for all alike. None waits for the disk, so what one has left to be written there is
written before the next begins.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.incremental_place import PROJECT
from benchmarks.ratios import of_medians

_SHARD_BYTES = 128 << 20  # of float32, as ImportWeights cuts them
_FILE_BYTES = 2 << 30
_BUILD = """\
[workspace]
name = "converting"

[[model]]
name = "model"
source = "checkpoint"

[[quantized_weights]]
name = "weights"
model = ":model"
quantization = "{quantization}"
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="llama-3-8b", help="one of the shapes in models/")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--quantization", default="q4f16_1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where everything is written; a temporary one if left out")
    parser.add_argument("--plain", type=Path, nargs=2, metavar=("CHECKPOINT", "OUTPUT"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.plain:
        checkpoint, output = given.plain
        _plain(checkpoint, output, given.quantization)
        return
    config = json.loads((PROJECT / "models" / given.model / "config.json").read_text())
    config["num_hidden_layers"] = given.layers or config["num_hidden_layers"]
    with tempfile.TemporaryDirectory(prefix="converting-", dir=given.folder) as folder:
        print(json.dumps(measure(config, given.quantization, given.rounds, Path(folder)), indent=1))


def measure(config: dict[str, Any], quantization: str, rounds: int, folder: Path) -> dict[str, Any]:
    """Raises SystemExit where the disk has too little room, or a command fails."""
    shapes = _shapes(config)
    total = sum(2 * math.prod(shape) for shape in shapes.values())
    free, needed = shutil.disk_usage(folder).free, 2.5 * total  # itself, the imported shards, and what is stored
    if free < needed:
        raise SystemExit(f"{folder} has {free / 1e9:.1f} GB, and {needed / 1e9:.1f} are needed: take fewer --layers")
    root = folder / "workspace"
    checkpoint = root / "checkpoint"
    files = _write_checkpoint(checkpoint, config, shapes)
    (root / "BUILD.toml").write_text(_BUILD.format(quantization=quantization))
    print(f"a checkpoint of {total / 1e9:.1f} GB is written", file=sys.stderr, flush=True)
    seconds: dict[str, list[float]] = {"plain": [], "1 worker": [], "2 workers": [], "a changed tensor": []}
    changed, peak, stored = {}, 0, set()
    for number in range(rounds):
        output = folder / "plain.bin"
        _clear(folder)
        began = time.perf_counter()
        arguments = ["--plain", str(checkpoint), str(output), "--quantization", quantization]
        subprocess.run([sys.executable, "-m", "benchmarks.converting", *arguments], cwd=PROJECT, check=True)
        seconds["plain"].append(time.perf_counter() - began)
        stored.add(output.stat().st_size)
        output.unlink()
        for jobs in (1, 2):
            _clear(folder)
            took, report = _build(folder, jobs)
            seconds[f"{jobs} worker{'s' * (jobs > 1)}"].append(took)
            peak = max(peak, report["ran"]["peak_bytes"])
            made = (root / "mlcbuild-out").rglob("params_shard_*.bin")
            stored.add(sum(path.stat().st_size for path in made))
        _change(*files["model.layers.0.mlp.down_proj.weight"])
        os.sync()
        took, report = _build(folder, 2)
        seconds["a changed tensor"].append(took)
        changed = report["actions"]
        print(f"round {number + 1} of {rounds} is done", file=sys.stderr, flush=True)
    if len(stored) != 1:
        raise SystemExit(f"not all have stored as many bytes: {sorted(stored)}")
    largest = max(map(math.prod, shapes.values()))
    return {
        "checkpoint": total,
        "stored": stored.pop(),
        "seconds": {name: [round(each, 1) for each in series] for name, series in seconds.items()},
        "1 worker against plain": of_medians(seconds["1 worker"], seconds["plain"]),
        "2 workers against plain": of_medians(seconds["2 workers"], seconds["plain"]),
        "2 workers against 1": of_medians(seconds["2 workers"], seconds["1 worker"]),
        "a changed tensor against 2 workers": of_medians(seconds["a changed tensor"], seconds["2 workers"]),
        "actions for a changed tensor": changed,
        "peak memory of an action": peak,
        "twice the largest tensor in float32 and a shard": 8 * largest + _SHARD_BYTES,
    }


def _shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    from tests.compiler.resolving import parameters_of

    return {tensor.name: tensor.shape for each in parameters_of(config).parameters for tensor in each.sources}


def _write_checkpoint(
    folder: Path, config: dict[str, Any], shapes: dict[str, tuple[int, ...]]
) -> dict[str, tuple[Path, int]]:
    """Files of at most 2 GB and their index. Returns the file of each tensor and where in it the tensor begins."""
    import ml_dtypes
    import numpy as np

    from tests.compiler.packaged import byte_level_tokenizer

    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(byte_level_tokenizer(300)))
    numbers = (np.random.default_rng(1).standard_normal(8 << 20, np.float32) * 0.02).astype(ml_dtypes.bfloat16)
    index, found = {}, {}
    for number, names in enumerate(_files(shapes)):
        path = folder / f"model-{number:05}.safetensors"
        header, begin = {}, 0
        for name in names:
            size = 2 * math.prod(shapes[name])
            header[name] = {"dtype": "BF16", "shape": list(shapes[name]), "data_offsets": [begin, begin + size]}
            index[name] = path.name
            begin += size
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with path.open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for name in names:
                found[name] = (path, file.tell())
                left = math.prod(shapes[name])
                shift = int.from_bytes(hashlib.sha256(name.encode()).digest()[:3], "little") % len(numbers)
                moved = np.roll(numbers, shift)
                while left:
                    file.write(moved[:left].tobytes())
                    left -= min(left, len(moved))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return found


def _files(shapes: dict[str, tuple[int, ...]]) -> Iterator[list[str]]:
    names: list[str] = []
    size = 0
    for name, shape in shapes.items():
        if names and size + 2 * math.prod(shape) > _FILE_BYTES:
            yield names
            names, size = [], 0
        names.append(name)
        size += 2 * math.prod(shape)
    yield names


def _clear(folder: Path) -> None:
    """Remove what builds have made, and leave nothing that the system has yet to write."""
    for path in ("cache", "workspace/.mlcbuild", "workspace/mlcbuild-out"):
        shutil.rmtree(folder / path, ignore_errors=True)
    os.sync()


def _change(path: Path, begin: int) -> None:
    """Another first number of a tensor."""
    with path.open("r+b") as file:
        file.seek(begin)
        first = file.read(1)
        file.seek(begin)
        file.write(bytes([first[0] ^ 1]))


def _build(folder: Path, jobs: int) -> tuple[float, Any]:
    """Seconds of the whole command, and its report."""
    report = folder / "report.json"
    environment = {"HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache"), "PYTHONPATH": str(PROJECT)}
    command = ["build", f"--jobs={jobs}", f"--build-report={report}", "//:weights"]
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "mlcbuild.cli.main", *command],
        cwd=folder / "workspace",
        env={"PATH": os.environ["PATH"]} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return time.perf_counter() - began, json.loads(report.read_text())


def _plain(checkpoint: Path, output: Path, quantization: str) -> None:
    """Read, digest, encode and write, one parameter after the other."""
    import ml_dtypes
    import numpy as np

    from mlcbuild.compiler.quantization.scheme import kept_dtype
    from mlcbuild.compiler.weights.operations import carry_out
    from mlcbuild.compiler.weights.tensor import dtype_of
    from tests.compiler import schemes
    from tests.compiler.resolving import parameters_of

    where: dict[str, tuple[Path, int]] = {}
    for path in sorted(checkpoint.glob("*.safetensors")):
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))
        where |= {name: (path, 8 + size + entry["data_offsets"][0]) for name, entry in header.items()}
    scheme = schemes.scheme(quantization)
    encoder = schemes.encoder(scheme)
    with output.open("wb") as out:
        for parameter in parameters_of(json.loads((checkpoint / "config.json").read_text())).parameters:
            dtype, read = dtype_of(kept_dtype(parameter, scheme.model_dtype)), []
            for tensor in parameter.sources:
                path, begin = where[tensor.name]
                numbers = np.fromfile(path, ml_dtypes.bfloat16, math.prod(tensor.shape), offset=begin)
                hashlib.sha256(numbers.view(np.uint8).data).digest()
                read.append(numbers.reshape(tensor.shape).astype(dtype))
            for array in encoder.encode(parameter, carry_out(parameter.operations, read)):
                out.write(np.ascontiguousarray(array).tobytes())


if __name__ == "__main__":
    main()
