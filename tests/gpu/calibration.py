"""What a model is observed by on a GPU is what a processor observes, and so are the weights that are calibrated by it.
In two steps, the second where a GPU is:

    python -m tests.gpu.calibration prepare FOLDER [--arch ARCH] [MODEL…]
    python -m tests.gpu.calibration check FOLDER [MODEL…]

`prepare` compiles what observes a small llama and a small mixtral with random weights, and the first layers of
SmolLM2-135M on the calibration's own text, for a GPU and for x86-64-v3, and writes both libraries with the imported
weights and the samples. With `--arch cpu` the first is for x86-64-v2, to try `check` without a GPU: other roundings.
`check` needs TVM's runtime and NumPy. It observes by both, twice by the first, whose bytes have to be the same again;
then weights are calibrated by AWQ, GPTQ, SmoothQuant and static scales, once by each observation, and quantized.

It tells, as shares of their bounds, which are `BOUNDS`: the largest differences of statistics, relative to the largest
number of each; the share of integers that differ, of a method; and the share of all other stored numbers that differ by
more than a hundredth. The log has the figures themselves.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from mlcbuild.compiler.calibration.made_parameters import made
from mlcbuild.compiler.calibration.samples import SampleShard, Tokens, read_samples, write_samples
from mlcbuild.compiler.calibration.statistics import Statistics
from mlcbuild.compiler.models.checkpoints.parameters import read_parameters, write_parameters
from mlcbuild.compiler.stages import apply_scales, gptq, maximum, observe, search_scales, smooth_scales
from tests.compiler import schemes, staged_weights
from tests.compiler.tiny_models import Array
from tests.gpu.models import MODELS
from tests.gpu.steps import run_steps

SMOLLM2 = "smollm2"
NAMES = ("llama", "mixtral", SMOLLM2)
BOUNDS: Mapping[str, float] = {
    "gram": 2e-5,
    "absolute_sum": 2e-5,
    "maximum": 2e-5,
    "integers": 0.01,
    "scales": 0.01,
    "again": 0.0,
}
METHODS: Mapping[str, str] = {
    "awq": "q4f16_1",
    "gptq": "q4f16_1",
    "smoothquant": "int8_int8_f16",
    "maximum": "e4m3_e4m3_f16",
}
_SCALE_TOLERANCE = 0.01
_LAYERS = 4  # of SmolLM2
_LENGTHS = (200, 130, 57, 90)
_X86_64_V2 = {"kind": "llvm", "mcpu": "x86-64-v2", "mtriple": "x86_64-linux-gnu"}


def prepare(
    name: str,
    folder: Path,
    *,
    arch: str,
    kernel_store: Path | None = None,
    architectures: Sequence[str] | None = None,
) -> None:
    """`architectures` are those of `compile_library`."""
    from tests.compiler.observing import observed_model
    from tests.compiler.pipeline import CPU_TARGET, CUDA_TARGET

    config, tensors, samples = _smollm2() if name == SMOLLM2 else _random(name)
    device: Mapping[str, object] = _X86_64_V2 if arch == "cpu" else {**CUDA_TARGET, "arch": arch}
    own = folder / name
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as work:
        for kind, target in (("cpu", CPU_TARGET), ("device", device)):
            made_in = Path(work) / kind
            observed_model(
                config,
                tensors,
                made_in,
                target=target,
                kernel_store=kernel_store,
                architectures=architectures if kind == "device" else None,
            )
            shutil.copyfile(made_in / "lib.so", own / f"{kind}.so")
        for file in ("parameters.json", "observation.json"):
            shutil.copyfile(made_in / file, own / file)
        shutil.copyfile(made_in / "imported.json", own / "manifest.json")
        shutil.copytree(made_in / "shards", own / "shards")
    write_samples(SampleShard(samples=tuple(samples)), own / "samples.json")
    (folder / f"{name}.json").write_text(json.dumps({"arch": arch}))


def _random(name: str) -> tuple[dict[str, Any], dict[str, Array], list[Tokens]]:
    from tests.compiler.running import random_model, tensors_of

    config = {"model_type": name} | MODELS[name]
    random = np.random.default_rng(7)
    samples = [tuple(random.integers(0, config["vocab_size"], length).tolist()) for length in _LENGTHS]
    return config, tensors_of(random_model(config)), samples


def _smollm2() -> tuple[dict[str, Any], dict[str, Array], list[Tokens]]:
    """The first layers, in float16, of which a folder has room, and those rows of the embedding that the text takes."""
    from mlcbuild.compiler.stages import import_config, import_weights, sample_texts
    from mlcbuild.compiler.weights.imported_shard import ImportedShard
    from mlcbuild.rules.families import families
    from tests.compiler.resolving import readers, write_resolved
    from tests.smollm2 import smollm2_gguf

    source, texts = smollm2_gguf(), Path(__file__).parents[2] / "models" / "calibration"
    with tempfile.TemporaryDirectory() as work:
        at = Path(work).joinpath
        import_config.run(
            source=source,
            config=at("config.json"),
            tokenizer=at("tokenizer"),
            vocabulary=at("vocabulary.json"),
            licenses=at("licenses"),
            families=families(),
            readers=readers(),
        )
        config = json.loads(at("config.json").read_text())
        write_resolved(Path(work), config)
        import_weights.run(
            source=source,
            parameters=at("parameters.json"),
            manifest=at("imported.json"),
            shards=at("shards"),
            readers=readers(),
        )
        sample_texts.run(
            texts=texts,
            tokenizer=at("tokenizer"),
            shards=at("samples"),
            manifest=at("samples.json"),
            samples=8,
            tokens=256,
            seed=0,
            shard_count=1,
        )
        (shard,) = at("samples").iterdir()
        read = read_samples(shard).samples
        used = sorted({token for sample in read for token in sample})
        tensors: dict[str, Array] = {}
        for path in sorted(at("shards").iterdir()):
            shard_of_weights = ImportedShard(path)
            for tensor in shard_of_weights.descriptions:
                parts = tensor.split(".")
                if "layers" not in parts or int(parts[parts.index("layers") + 1]) < _LAYERS:
                    numbers = shard_of_weights.read(tensor).numbers("float32")
                    numbers = numbers[used] if len(numbers) == config["vocab_size"] else numbers
                    tensors[tensor] = np.ascontiguousarray(numbers, np.float16)
    number = {token: place for place, token in enumerate(used)}
    samples = [tuple(number[token] for token in sample) for sample in read]
    return config | {"num_hidden_layers": _LAYERS, "vocab_size": len(used)}, tensors, samples


def check(name: str, folder: Path, *, methods: Mapping[str, str] = METHODS) -> dict[str, float]:
    """Shares of the bounds, the largest of each."""
    own, found = folder / name, dict.fromkeys(BOUNDS, 0.0)
    told: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        statistics = {}
        for kind, library in (("cpu", "cpu"), ("device", "device"), ("again", "device")):
            begin = time.monotonic()
            statistics[kind] = _observe(own, f"{library}.so", work / kind)
            told[f"{kind}_seconds"] = round(time.monotonic() - begin, 1)
        one, other = _bytes(statistics["device"]), _bytes(statistics["again"])
        found["again"] = 0.0 if one == other else np.inf
        found |= differences(Statistics(statistics["cpu"]), Statistics(statistics["device"]))
        begin = time.monotonic()
        with ThreadPoolExecutor() as pool:
            made_by = {
                (method, kind): pool.submit(
                    _calibrated, own, work / f"{method}-{kind}", statistics[kind], method, quantization
                )
                for method, quantization in methods.items()
                for kind in ("cpu", "device")
            }
        told["calibration_seconds"] = round(time.monotonic() - begin, 1)
        for method in methods:
            integers, scales = shares(made_by[method, "cpu"].result(), made_by[method, "device"].result())
            told[method] = {"integers": integers, "scales": scales}
            found["integers"], found["scales"] = max(found["integers"], integers), max(found["scales"], scales)
    print(name, json.dumps({"found": found, **told}), flush=True)
    parts = {kind: found[kind] / bound if bound else found[kind] for kind, bound in BOUNDS.items()}
    return {"bound": 1.0, **parts}


def _observe(own: Path, library: str, to: Path) -> Path:
    observe.run(
        samples=own / "samples.json",
        shards=sorted((own / "shards").iterdir()),
        parameters=own / "parameters.json",
        library=own / library,
        observation=own / "observation.json",
        statistics=to,
        hints={"threads": os.cpu_count() or 1},
    )
    return to


def _bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def differences(expected: Statistics, found: Statistics) -> dict[str, float]:
    """The largest of each statistic over all inputs, relative to the largest number of the input's."""
    largest = {"gram": 0.0, "absolute_sum": 0.0, "maximum": 0.0}
    for each in expected.index.inputs:
        one, other = expected.of(each.matrices[0]), found.of(each.matrices[0])
        assert one is not None
        assert other is not None
        assert one.rows == other.rows
        for kind in largest:
            wanted, had = getattr(one, kind), getattr(other, kind)
            error = float(np.abs(wanted - had).max() / np.abs(wanted).max())
            largest[kind] = max(largest[kind], error) if np.isfinite(error) else np.inf
    return largest


def _calibrated(own: Path, work: Path, statistics: Path, method: str, quantization: str) -> dict[str, Array]:
    """The weights of a package, by the names of stored tensors."""
    scheme = schemes.scheme(quantization)
    plugins: dict[str, Any] = {"scheme": scheme, "encoder": schemes.encoder_class(scheme)}
    shards = sorted((own / "shards").iterdir())
    parameters, scales = own / "parameters.json", work / "scales"
    (work / "shards").mkdir(parents=True)
    run: Callable[..., None]
    if method in ("awq", "smoothquant"):
        search: Callable[..., None] = search_scales.run
        if method == "smoothquant":
            search = functools.partial(smooth_scales.run, alpha=0.5)
        search(shards=shards, parameters=parameters, statistics=statistics, scales=scales, **plugins)
        run = functools.partial(apply_scales.run, scales=scales)
    elif method == "gptq":
        run = functools.partial(gptq.run, statistics=statistics, by_activations=False, **plugins)
    else:
        run = functools.partial(maximum.run, statistics=statistics, **plugins)
    for shard in shards:
        run(shard=shard, parameters=parameters, calibrated=work / "shards" / shard.name)
    write_parameters(made(read_parameters(parameters)), work / "parameters.json")
    shutil.copyfile(own / "manifest.json", work / "manifest.json")
    return staged_weights.stored(work, staged_weights.quantized(work, quantization))


def shares(expected: Mapping[str, Array], found: Mapping[str, Array]) -> tuple[float, float]:
    """The share of integers that differ, those of 4 bits one by one, and that of other numbers."""
    integers, others = [0, 0], [0, 0]
    for name, one in expected.items():
        other = found[name]
        if one.dtype == np.uint32 or one.dtype.itemsize == 1:
            places = range(0, 32, 4) if one.dtype == np.uint32 else (0,)
            bits = one.view(f"u{one.dtype.itemsize}") ^ other.view(f"u{one.dtype.itemsize}")
            integers[0] += sum(
                int(np.count_nonzero(bits >> place & 15 if len(places) > 1 else bits)) for place in places
            )
            integers[1] += len(places) * one.size
        else:
            wide, had = one.astype(np.float64), other.astype(np.float64)
            others[0] += int(np.count_nonzero(~(np.abs(wide - had) <= _SCALE_TOLERANCE * np.abs(wide))))
            others[1] += one.size
    return integers[0] / max(integers[1], 1), others[0] / max(others[1], 1)


def main() -> None:
    run_steps(
        __doc__,
        NAMES,
        prepare=lambda name, folder, asked: prepare(name, folder, arch=asked.arch),
        check=check,
    )


if __name__ == "__main__":
    main()
