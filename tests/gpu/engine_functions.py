"""What a serving engine calls of a library says on a GPU what NumPy says. In two steps, the second where a GPU is:

    python -m tests.gpu.engine_functions prepare FOLDER [--quantization NAME] [--arch ARCH] [NAME…]
    python -m tests.gpu.engine_functions check LIBRARY…

`prepare` compiles a small model for each kind of library, with hidden states where a kind has them. `check` takes any
library. It has to have the functions of its kind and no others, and each is called with random numbers for its
vocabulary and several batches, by MLC-LLM's names and arguments (`tests.engine_checks`). What a call takes, waited for,
is told in microseconds.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mlcbuild.runtime.machine import Machine
from tests.engine_checks import checks_of
from tests.engine_functions import FUNCTIONS, Engine, Presence, expected_functions
from tests.gpu.models import MODELS

BATCHES = (1, 4, 64)
REPEATS = 20
PADDING = 30  # rows of a vocabulary that no token has
_EMBEDDINGS = {"embedding_metadata": {"model_type": "decoder", "pooling_strategy": "last", "normalize": True}}
LIBRARIES: Mapping[str, tuple[dict[str, Any], bool]] = {
    "llama": (MODELS["llama"], True),
    "gemma2": (MODELS["gemma2"], True),
    "mixtral": (MODELS["mixtral"], True),
    "deepseek_v2": (MODELS["deepseek_v2"], True),
    "mamba2": (MODELS["mamba2"], False),
    "qwen3_5_text": (MODELS["qwen3_5_text"], False),
    "bert": (MODELS["bert"], False),
    "qwen3-embedding": (MODELS["qwen3"] | _EMBEDDINGS | {"model_type": "qwen3"}, False),
}
"""The fields of a configuration, and whether the library has functions of hidden states."""


def prepare(name: str, folder: Path, *, quantization: str, arch: str) -> Path:
    from mlcbuild.compiler.tokenizer.vocabulary import Vocabulary, write_vocabulary
    from tests.compiler.pipeline import CUDA_TARGET, compile_library

    fields, hidden_states = LIBRARIES[name]
    config = {"model_type": name} | fields
    work = folder / "work" / name
    work.mkdir(parents=True, exist_ok=True)
    write_vocabulary(Vocabulary(active_size=config["vocab_size"] - PADDING), work / "vocabulary.json")
    target, store = {**CUDA_TARGET, "arch": arch}, folder / "kernels"
    built = compile_library(config, quantization, target, work, kernel_store=store, hidden_states=hidden_states)
    return Path(shutil.copyfile(built, folder / f"{name}.so"))


def check(library: Path, *, seed: int) -> Iterator[str]:
    """What is wrong with a library."""
    engine = Engine(Machine(library), repeats=REPEATS)
    # One function of hidden states is enough to expect all of them.
    hidden_states = any(presence is Presence.HIDDEN_STATES for presence in map(FUNCTIONS.get, engine.functions))
    expected = expected_functions(engine.kind, gpu=True, hidden_states=hidden_states)
    yield from (f"there is no {name}" for name in sorted(expected - engine.functions))
    yield from (f"there is {name}" for name in sorted(engine.functions - expected))
    for each in checks_of(engine.kind, gpu=True, hidden_states=hidden_states):
        for batch in BATCHES:
            try:
                each(engine, np.random.default_rng(seed), batch)
            except Exception as error:  # of NumPy's comparison, or whatever the library raises
                yield f"{each.__name__} with a batch of {batch} FAILED: {type(error).__name__}: {error}"
    told = f"{engine.kind.value}{', with hidden states' if hidden_states else ''}, {len(expected)} functions"
    print(library, told, json.dumps({name: round(took, 1) for name, took in engine.took.items()}, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("prepare", "check"))
    parser.add_argument("paths", nargs="+", metavar="FOLDER [NAME…] | LIBRARY…")
    parser.add_argument("--quantization", default="q4f16_1")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--seed", type=int, default=0, help="of the random numbers of check")
    given = parser.parse_intermixed_args()
    if given.step == "prepare":
        folder, *names = given.paths
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name in names or LIBRARIES:
            print(prepare(name, Path(folder), quantization=given.quantization, arch=given.arch), flush=True)
        return
    failed = False
    for library in map(Path, given.paths):
        for problem in check(library, seed=given.seed):
            failed = True
            print(f"{library}: {problem}", flush=True)
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
