"""Every family by every scheme that the table of legal combinations allows: how near a quantized library comes to the
float32 library of the same model, whose weights are what the stored ones stand for.

Both are compiled by the same stages; that the float32 library computes what transformers does, `test_families.py`
shows. Compared are all tokens of two texts, and tokens that follow a prompt one by one; of encoders, hidden states. The
largest difference counts. In a mixture, both use the experts that the quantized library has chosen (`routed_alike`),
and how many tokens the float32 library would have sent to others is told.

The bound is that of `parity`: roundings to the scheme's type, of which a layer has so many. Where activations are
rounded too, and in recurrent layers, some tokens are much more sensitive to roundings than others; a token's bound is
then at most what the float32 library itself moves by, when its weights do (`moved_weights`).

A pair takes one to two seconds of a processor: modules stay in memory, kernels are kept by name, entry functions that
are not compared are left out, and LLVM does not optimize, which changes the sixth digit of errors.
"""

from __future__ import annotations

import functools
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from mlcbuild.errors import StageError
from mlcbuild.rules.backend import backends
from mlcbuild.rules.families import families
from mlcbuild.rules.legality import table
from tests.compiler import schemes
from tests.compiler.encoders import EncoderLibrary, texts
from tests.compiler.family_case import FamilyCase
from tests.compiler.family_cases import CASES
from tests.compiler.modules_in_memory import modules_in_memory
from tests.compiler.moved_weights import roundings_move, rounds_activations
from tests.compiler.parity import sequences, type_bound
from tests.compiler.pipeline import CPU_TARGET, compile_library
from tests.compiler.resolving import model_of, parameters_of
from tests.compiler.routed_alike import Routing
from tests.compiler.running import Library, random_model, tensors_of
from tests.compiler.tiny_models import Array
from tests.compiler.windowed_cases import WINDOWED

RESULTS = Path(__file__).with_name("scheme_grid.json")
MODELS: Mapping[str, FamilyCase] = CASES | WINDOWED
_REFERENCE = "q0f32"
_TARGET = {**CPU_TARGET, "opt-level": 0}
_COMPARED = ("embed", "batch_verify", "decode")  # entry functions
_PROMPT, _STEPS = 18, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The largest `error` of a pair's tokens, and the `bound` of that token, both relative to the largest number of the
    float32 library; or why the model `cannot` be stored so. `share` is the largest part of its bound that a token's
    error is, where tokens have bounds of their own; else 0. `rerouted` counts choices of experts that the float32
    library would have made otherwise. `former` results are older than this way of comparing: of a mixture, and of
    floats of 8 bits, they are those of the median token, and the bound of rounded activations is that of `parity`."""

    error: float = 0.0
    bound: float = 0.0
    share: float = 0.0
    rerouted: int = 0
    former: bool = False
    cannot: str = ""

    @property
    def is_within(self) -> bool:
        return self.share <= 1 if self.share else self.error <= self.bound


def pairs() -> Iterator[tuple[str, str]]:
    """A model of `family_cases` and a scheme, for each that is legal on a CPU."""
    rows = table(families(), map(schemes.scheme, schemes.NAMES), [backends()["cpu"]])
    legal = {(row.family, row.quantization) for row in rows if row.is_legal}
    for model, case in MODELS.items():
        family = model_of(case.config).family
        yield from ((model, scheme) for scheme in schemes.NAMES if (family, scheme) in legal)


def covering() -> frozenset[tuple[str, str]]:
    """A pair of each family, with schemes in turn, so that every scheme is in one: of those that can be stored, the
    scheme that fewest families have had before."""
    results = read_results()
    possible: dict[str, list[str]] = {}
    for model, scheme in pairs():
        if not results.get((model, scheme), Measured()).cannot:
            possible.setdefault(model, []).append(scheme)
    first: dict[str, str] = {}
    for model in possible:
        first.setdefault(model_of(MODELS[model].config).family, model)
    used = dict.fromkeys(schemes.NAMES, 0)
    found = set()
    for model in first.values():
        scheme = min(possible[model], key=lambda name: used[name])
        used[scheme] += 1
        found.add((model, scheme))
    return frozenset(found)


def measure(model: str, scheme_name: str, *, kernel_store: Path) -> Measured:
    """Build a pair, and compare it. Does not fail above the bound, nor for a model that the scheme cannot store."""
    try:
        with modules_in_memory():
            return _measured(model, scheme_name, kernel_store=kernel_store)
    except StageError as error:
        return Measured(cannot=error.message)


def _measured(model: str, scheme_name: str, *, kernel_store: Path) -> Measured:
    case, scheme = MODELS[model], schemes.scheme(scheme_name)
    listed = parameters_of(case.config).parameters
    stored = schemes.stored(case.config, scheme, _checkpoint(model))
    encoder = schemes.encoder(scheme)
    restored = {
        one.name: encoder.decode(one, [stored[tensor.name] for tensor in scheme.stored(one)]).astype(np.float32)
        for one in listed
    }
    routing = Routing(groups=case.config.get("topk_group") or 0)
    found = _outputs(model, scheme_name, stored, kernel_store, routing)
    expected, rerouted = _expected(model, restored, kernel_store, routing)
    largest = float(np.abs(expected).max())
    errors = np.abs(found - expected).max(axis=-1) / largest
    worst = int(errors.argmax())
    sizes = {
        "num_hidden_layers": model_of(case.config).layers.count,
        "hidden_size": max(one.shape[-1] for one in listed),
        "intermediate_size": 0,
    }
    of_the_type = type_bound(sizes, scheme)
    is_recurrent = any(one.name.endswith(".A_log") for one in listed)
    if not rounds_activations(scheme) and not is_recurrent:
        return Measured(error=float(errors[worst]), bound=of_the_type, rerouted=rerouted)

    def computed(weights: Mapping[str, Array]) -> Array:
        return _expected(model, weights, kernel_store, routing)[0]

    bounds = np.maximum(roundings_move(computed, restored, listed, scheme) / largest, of_the_type)
    return Measured(
        error=float(errors[worst]),
        bound=float(bounds[worst]),
        share=float((errors / bounds).max()),
        rerouted=rerouted,
    )


@functools.cache
def _checkpoint(model: str) -> Mapping[str, Array]:
    case = MODELS[model]
    tensors = case.checkpoint(tensors_of(random_model(case.model)))
    return {name: np.array(numbers) for name, numbers in tensors.items()}


@functools.lru_cache(maxsize=2)
def _reference(model: str, kernel_store: Path) -> Path:
    return _library(model, _REFERENCE, kernel_store)


def _library(model: str, scheme: str, kernel_store: Path) -> Path:
    case = MODELS[model]
    is_encoder = model_of(case.config).limits.is_encoder
    folder = Path(tempfile.mkdtemp(prefix=f"{model}-{scheme}-", dir=kernel_store.parent))
    return compile_library(
        case.config,
        scheme,
        _TARGET,
        folder,
        kernel_store=kernel_store,
        overrides=case.overrides,
        entry_functions=None if is_encoder else _COMPARED,
    )


def _outputs(model: str, scheme: str, weights: Mapping[str, Array], kernel_store: Path, routing: Routing) -> Array:
    """(tokens, n) of all that is compared, by the quantized library. `routing` gets what its routers choose."""
    path = _library(model, scheme, kernel_store)
    try:
        return _run(model, path, weights, routing.record)
    finally:
        shutil.rmtree(path.parent)


def _expected(model: str, weights: Mapping[str, Array], kernel_store: Path, routing: Routing) -> tuple[Array, int]:
    """The same by the float32 library, whose routers choose alike, and how many choices would have been others."""
    others: list[int] = []

    def impose(library: Library) -> None:
        nonlocal others
        others = routing.impose(library)

    found = _run(model, _reference(model, kernel_store), weights, impose)
    assert len(others) == len(routing.ranks)
    return found, sum(others)


def _run(model: str, path: Path, weights: Mapping[str, Array], instrument: Callable[[Library], object]) -> Array:
    config, vocabulary = MODELS[model].config, MODELS[model].model["vocab_size"]
    if model_of(config).limits.is_encoder:
        tokens, mask = texts(vocabulary)
        library = EncoderLibrary(path, weights)
        hidden = library.hidden(tokens, mask)[mask > 0].astype(np.float32)
        return np.concatenate([hidden, library.hidden(tokens[:1, :1], mask[:1, :1])[0].astype(np.float32)])
    decoder, found = Library.load(path, weights), []
    instrument(decoder)
    first, second = sequences(vocabulary)
    for number, text in enumerate((first, second, first[:_PROMPT])):
        decoder.add(number)
        found.append(decoder.run("batch_verify", [number], [len(text)], decoder.embed(text)[None])[0])
    found += [decoder.decode(2, token)[None] for token in first[_PROMPT : _PROMPT + _STEPS]]
    return np.concatenate(found)


def read_results() -> dict[tuple[str, str], Measured]:
    """What was measured, by model and scheme."""
    document = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return {(model, scheme): Measured(**found) for model, row in document.items() for scheme, found in row.items()}


def write_results(results: Mapping[tuple[str, str], Measured]) -> None:
    """A file with a line a pair, of the pairs that there are, in their order."""
    document: dict[str, dict[str, object]] = {}
    for model, scheme in pairs():
        if (model, scheme) in results:
            found = {name: value for name, value in asdict(results[model, scheme]).items() if value}
            document.setdefault(model, {})[scheme] = {
                name: float(f"{value:.2g}") if isinstance(value, float) else value for name, value in found.items()
            }
    rows = (
        f"{json.dumps(model)}: {{\n"
        + ",\n".join(f"  {json.dumps(scheme)}: {json.dumps(found)}" for scheme, found in row.items())
        + "\n}"
        for model, row in document.items()
    )
    RESULTS.write_text("{\n" + ",\n".join(rows) + "\n}\n")
