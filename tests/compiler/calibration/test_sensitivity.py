"""Schemes chosen by measured errors: on a small model some of whose matrices are hard to quantize, and known.

Half of the channels of these matrices' inputs are larger, and their columns as much smaller (`outlier_model`). So what
the groups of their rows have few integers for are the weights that matter. The right answer is known: these matrices
get the bits, at the expense of all others. Rows are of a length that groups of 40, of 3 bits, divide.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcbuild.compiler.calibration.divergence import first_samples
from mlcbuild.compiler.calibration.samples import SampleShard, write_samples
from mlcbuild.compiler.calibration.scales import Scales, Scaling
from mlcbuild.compiler.calibration.sensitivity import (
    MeasuredParameter,
    Sensitivity,
    read_sensitivity,
    write_sensitivity,
)
from mlcbuild.compiler.models.checkpoints.parameters import (
    CheckpointTensor,
    Parameter,
    ParameterList,
    write_parameters,
)
from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.quantization.mixed.precision import Precision, read_precision
from mlcbuild.compiler.quantization.scheme import QuantizationScheme
from mlcbuild.compiler.stages import choose_precision, measure_sensitivity
from mlcbuild.errors import StageError
from tests.compiler import schemes
from tests.compiler.calibration import outlier_model
from tests.compiler.calibration.outlier_model import loaded, logits_error, texts
from tests.compiler.family_cases import CASES
from tests.compiler.observing import observed_model
from tests.compiler.parity import reference
from tests.compiler.resolving import parameters_of
from tests.compiler.running import random_model, tensors_of
from tests.compiler.tiny_models import Array

_CANDIDATES = ("q3f16_1", "q4f16_1", "q8f16_1", "q0f16")
_HARD = ("model.layers.0.mlp.down_proj.weight", "model.layers.1.self_attn.qkv_proj.weight")
_FACTOR = 16.0
_SAMPLE = ((5, 3, 250, 18, 77, 102, 9, 31), tuple(range(40, 160)), tuple(range(319, 200, -1)))
_CONFIG: dict[str, Any] = outlier_model.CONFIG | {
    "hidden_size": 160,
    "intermediate_size": 320,
    "num_hidden_layers": 3,
}


@dataclass(frozen=True, kw_only=True)
class _World:
    folder: Path
    tensors: dict[str, Array]
    measured: tuple[Path, ...]

    def choose(self, budget: str, candidates: tuple[str, ...] = _CANDIDATES) -> Path:
        path = self.folder / "chosen" / f"{budget}.json"
        path.parent.mkdir(exist_ok=True)
        choose_precision.run(
            measured=tuple(one for one in self.measured if one.stem in candidates),
            parameters=self.folder / "parameters.json",
            precision=path,
            candidates=candidates,
            budget=budget,
        )
        return path


@pytest.fixture(scope="module", autouse=True)
def _sizes() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outlier_model, "CONFIG", _CONFIG)
        yield


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, kernel_store: Path) -> _World:
    folder = tmp_path_factory.mktemp("sensitivity")
    tensors = {name: array.copy() for name, array in tensors_of(random_model(_CONFIG)).items()}
    for name, array in tensors.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            array *= 0.25  # so that the layers' errors do not grow from one to the next
    # A table that integers of 4 bits have exactly: what is compared is the error of the layers.
    table = np.random.default_rng(2).integers(-7, 8, tensors["model.embed_tokens.weight"].shape).astype(np.float32)
    table[:, ::8] = 7
    # They are small, so that no token is certain: the head is this table, and a token would be its own best guess.
    tensors["model.embed_tokens.weight"] = table / 64
    tensors = _with_hard_matrices(tensors)
    observed_model(_CONFIG, tensors, folder, kernel_store=kernel_store)
    measured = tuple(_measure(folder, name, _SAMPLE) for name in _CANDIDATES)
    return _World(folder=folder, tensors=tensors, measured=measured)


def test_the_bits_go_to_the_matrices_that_need_them_and_beat_uniform_ones(world: _World) -> None:
    path = world.choose("q4f16_1")
    precision, told = read_precision(path), json.loads(path.read_text())["measured"]
    assert {precision.scheme(name) for name in _HARD} <= {"q8f16_1", "q0f16"}
    uniform = schemes.scheme("q4f16_1")
    mixed = schemes.mixed(_CONFIG, precision.table)
    assert _bytes(mixed) == told["bytes"] <= told["budget_bytes"] == _bytes(uniform)
    model, sample = loaded(world.tensors), texts(4, seed=2)
    assert _error(world, mixed, model, sample) < 0.9 * _error(world, uniform, model, sample)


def test_divergences_are_those_of_the_next_tokens_probabilities(world: _World) -> None:
    scheme, plain = schemes.scheme("q3f16_1"), schemes.scheme("q0f32")
    stored = schemes.stored(_CONFIG, plain, world.tensors)
    found = {one.name: one for one in read_sensitivity(world.measured[0]).parameters}
    expected = [_log_probabilities(loaded(world.tensors), list(sample)) for sample in _SAMPLE]
    for parameter in parameters_of(_CONFIG).parameters:
        measured = found[parameter.name]
        sizes = [math.prod(tensor.shape) * np.dtype(tensor.dtype).itemsize for tensor in scheme.stored(parameter)]
        assert measured.bytes == sum(sizes)
        if not scheme.covers(parameter.role):
            assert measured.divergence == 0
            continue
        arrays = schemes.encoder(scheme).encode(parameter, stored[parameter.name].astype(np.float16))
        changed = schemes.encoder(scheme).decode(parameter, arrays).astype(np.float32)
        model = loaded(schemes.restored(_CONFIG, plain, stored | {parameter.name: changed}))
        others = [_log_probabilities(model, list(sample)) for sample in _SAMPLE]
        sums = [(np.exp(one) * (one - other)).sum(axis=1) for one, other in zip(expected, others, strict=True)]
        assert measured.divergence == pytest.approx(np.concatenate(sums).mean(), rel=2e-2)


def test_a_model_as_it_is_does_not_diverge(world: _World) -> None:
    assert not any(one.divergence for one in read_sensitivity(world.measured[3]).parameters)


def test_an_encoder_diverges_by_its_hidden_states(tmp_path: Path, kernel_store: Path) -> None:
    case = CASES["bert"]
    tensors = {name: np.array(array) for name, array in case.checkpoint(tensors_of(random_model(case.model))).items()}
    observed_model(case.config, tensors, tmp_path, kernel_store=kernel_store)
    three, eight = (
        {one.name: one for one in read_sensitivity(_measure(tmp_path, name, ((2, 7, 9, 4),))).parameters}
        for name in ("q3f16_1", "q8f16_1")
    )
    quantized = [name for name, one in three.items() if one.quantized and one.divergence is not None]
    assert len(quantized) > 4
    assert all(0 < (eight[name].divergence or 0) < (three[name].divergence or 0) < 1 for name in quantized)


def test_samples_are_read_up_to_a_number_of_tokens() -> None:
    pieces = [(1,) * 300, (2,) * 200, (3,) * 200]
    assert first_samples(pieces) == pieces[:2]
    assert first_samples([(1,) * 5000]) == [(1,) * 5000]


def test_more_bytes_never_give_a_greater_error_and_no_budget_is_exceeded(world: _World) -> None:
    errors = []
    for bits in ("4 bits", "4.5 bits", "6 bits", "8 bits", "12 bits", "16 bits"):
        path = world.choose(bits)
        told = json.loads(path.read_text())["measured"]
        assert told["bytes"] <= told["budget_bytes"]
        assert told["error_lower_bound"] <= told["error"]
        assert _bytes(schemes.mixed(_CONFIG, read_precision(path).table)) == told["bytes"]
        errors.append(told["error"])
    assert errors == sorted(errors, reverse=True)
    assert read_precision(world.choose("16 bits")).default == "q0f16"


@pytest.mark.parametrize(("first", "is_mixed"), [(0.05, True), (0.95, False)])
def test_several_schemes_are_not_chosen_for_a_small_gain(first: float, is_mixed: bool, tmp_path: Path) -> None:
    """Two matrices have the errors `first` and 1 in the scheme whose bytes are allowed, and none or twice these in
    those beside it: with the bits of the first, the second has none."""
    names, linear = ("l.0.up.weight", "l.0.down.weight"), ParameterRole.LINEAR
    files = []
    for scheme, size, factor in (("q3f16_1", 60, 2.0), ("q4f16_1", 80, 1.0), ("q8f16_1", 100, 0.0)):
        found = tuple(
            MeasuredParameter(name=name, role=linear, bytes=size, quantized=True, divergence=factor * error)
            for name, error in zip(names, (first, 1.0), strict=True)
        )
        files.append(tmp_path / f"{scheme}.json")
        write_sensitivity(Sensitivity(scheme=scheme, parameters=found), files[-1])
    listed = tuple(
        Parameter(name=name, role=linear, shape=(1, 1), sources=(CheckpointTensor(name=name, shape=(1, 1)),))
        for name in names
    )
    write_parameters(ParameterList(parameters=listed), tmp_path / "parameters.json")
    choose_precision.run(
        measured=tuple(files),
        parameters=tmp_path / "parameters.json",
        precision=tmp_path / "precision.json",
        candidates=("q3f16_1", "q4f16_1", "q8f16_1"),
        budget="q4f16_1",
    )
    precision = read_precision(tmp_path / "precision.json")
    told = json.loads((tmp_path / "precision.json").read_text())["measured"]
    assert told["least_error"] == pytest.approx(2 * first)
    assert [precision.scheme(name) for name in names] == (
        ["q3f16_1", "q8f16_1"] if is_mixed else ["q4f16_1", "q4f16_1"]
    )
    assert told["error"] == pytest.approx(2 * first if is_mixed else first + 1)


def test_a_budget_that_no_choice_keeps_to_says_what_the_least_is(world: _World) -> None:
    with pytest.raises(StageError, match=r"the budget of \d[\d,]* bytes \(2 bits\) is below the \d[\d,]* that"):
        world.choose("2 bits")


def test_a_candidate_that_was_not_measured_is_an_error(world: _World) -> None:
    with pytest.raises(StageError, match="was not measured by q4f16_2"):
        world.choose("4.5 bits", ("q4f16_1", "q4f16_2"))


def test_the_same_choice_has_the_same_bytes(world: _World) -> None:
    first = world.choose("5 bits").read_bytes()
    assert world.choose("5 bits").read_bytes() == first
    assert Precision.of_table(json.loads(first)["quantization"]) == read_precision(world.choose("5 bits"))


def _with_hard_matrices(tensors: dict[str, Array]) -> dict[str, Array]:
    """The same model, in which half of the columns of the hard matrices are smaller and their inputs as much larger."""
    listed, scheme = parameters_of(_CONFIG), schemes.scheme("q0f32")
    stored = schemes.stored(_CONFIG, scheme, tensors)
    random = np.random.default_rng(5)
    scales = {}
    for one in listed.smoothed:
        scales[one.matrices[0]] = np.ones(one.channels, np.float32)
        if one.matrices[0] in _HARD:
            scales[one.matrices[0]][random.permutation(one.channels)[: one.channels // 2]] = 1 / _FACTOR
    scaling = Scaling(found=Scales(scales=scales), smoothed=listed.smoothed)
    changed = {one.name: scaling.changed(one, stored[one.name], None) for one in listed.parameters}
    assert sum((changed[name] != stored[name]).any() for name in _HARD) == len(_HARD)
    return schemes.restored(_CONFIG, scheme, changed)


def _measure(folder: Path, name: str, sample: Sequence[tuple[int, ...]]) -> Path:
    """What MeasureSensitivity writes of an `observed_model`, whose weights are one shard, by a scheme."""
    scheme, samples = schemes.scheme(name), folder / "samples"
    samples.mkdir(exist_ok=True)
    write_samples(SampleShard(samples=tuple(sample)), samples / "samples_00000.json")
    (shard,) = (folder / "shards").iterdir()
    measure_sensitivity.run(
        shard=shard,
        shards=[shard],
        parameters=folder / "parameters.json",
        samples=samples,
        library=folder / "lib.so",
        observation=folder / "observation.json",
        measured=folder / f"{name}.json",
        scheme=scheme,
        encoder=schemes.encoder_class(scheme),
    )
    return folder / f"{name}.json"


def _log_probabilities(model: Any, tokens: list[int]) -> Array:
    logits = reference(model, tokens).astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    found: Array = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return found


def _bytes(scheme: QuantizationScheme) -> int:
    return sum(
        math.prod(tensor.shape) * np.dtype(tensor.dtype).itemsize
        for parameter in parameters_of(_CONFIG).parameters
        for tensor in scheme.stored(parameter)
    )


def _error(world: _World, scheme: QuantizationScheme, model: object, sample: list[list[int]]) -> float:
    stored = schemes.stored(_CONFIG, scheme, world.tensors)
    return logits_error(schemes.restored(_CONFIG, scheme, stored), model, sample)
