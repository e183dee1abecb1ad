"""Scales and limits that a calibration finds: what they are on a model whose right answer is known, and that they never
make worse what they are searched by."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlcbuild.compiler.calibration.awq import search_scales
from mlcbuild.compiler.calibration.clipping import search_clipping
from mlcbuild.compiler.calibration.matrices import ModelMatrices, Rounding
from mlcbuild.compiler.calibration.measured_error import MeasuredError, MeasuredGroups
from mlcbuild.compiler.calibration.powers import STEPS, power
from mlcbuild.compiler.calibration.scales import WHOLE, clipped, of_columns, read_scales
from mlcbuild.compiler.calibration.statistics import ObservedInput, Statistics, write_index, write_input
from mlcbuild.compiler.models.checkpoints.parameters import Parameter
from mlcbuild.compiler.models.checkpoints.smoothing import Absorber, SmoothedInput
from mlcbuild.compiler.stages import search_scales as search_stage
from mlcbuild.compiler.stages import smooth_scales
from tests.compiler import schemes
from tests.compiler.calibration import outlier_model
from tests.compiler.calibration.outlier_model import Models
from tests.compiler.tiny_models import Array

INT4 = ("q4f32_1", "q4f16_autoawq")


@pytest.fixture(scope="module")
def models() -> Models:
    return outlier_model.make_models()


@pytest.fixture(scope="module")
def folder(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shard of the model with outliers, and its statistics."""
    folder = tmp_path_factory.mktemp("outliers")
    outlier_model.write_shard(folder, models.tensors)
    outlier_model.write_statistics(folder / "statistics", models.outliers, outlier_model.texts(8, seed=6))
    return folder


@functools.cache
def _scales(folder: Path, quantization: str) -> Path:
    return _search(folder, quantization, folder / f"{quantization}.scales")


def _search(folder: Path, quantization: str, scales: Path) -> Path:
    scheme = schemes.scheme(quantization)
    search_stage.run(
        shards=[folder / "shard.safetensors"],
        parameters=folder / "parameters.json",
        statistics=folder / "statistics",
        scales=scales,
        scheme=scheme,
        encoder=schemes.encoder_class(scheme),
    )
    return scales


@pytest.mark.parametrize("quantization", INT4)
def test_awq_wins_on_outliers(quantization: str, models: Models, folder: Path, tmp_path: Path) -> None:
    """At least 2.5 times nearer than without, and within a quarter of the plain model's own error."""
    shard, held = folder / "shard.safetensors", outlier_model.texts(4, seed=5)

    def error(tensors: dict[str, Array]) -> float:
        return outlier_model.logits_error(tensors, models.plain, held)

    plain = outlier_model.write_shard(tmp_path, models.plain_tensors)
    best = error(outlier_model.restored(tmp_path, plain, quantization, parameters="parameters.json"))
    without = error(outlier_model.restored(folder, shard, quantization, parameters="parameters.json"))
    calibrated = error(outlier_model.calibrated(folder, shard, _scales(folder, quantization), quantization))
    assert calibrated < without / 2.5
    assert calibrated < 1.25 * best


def test_outliers_have_the_largest_scales(models: Models, folder: Path) -> None:
    for first, scales in read_scales(_scales(folder, "q4f32_1")).scales.items():
        outliers = models.channels[first]
        assert set(np.argsort(scales)[-len(outliers) :]) == set(outliers)


def test_smoothquant_evens_out_activations(models: Models, folder: Path) -> None:
    """What an input has at most, once it is divided: the largest channel against the median one."""
    scheme = schemes.scheme("q8f32_1")
    smooth_scales.run(
        shards=[folder / "shard.safetensors"],
        parameters=folder / "parameters.json",
        statistics=folder / "statistics",
        scales=folder / "smooth",
        alpha=0.5,
        scheme=scheme,
        encoder=schemes.encoder_class(scheme),
    )
    found, observed = read_scales(folder / "smooth"), Statistics(folder / "statistics")
    assert not found.clipping
    for first in ("model.layers.0.self_attn.qkv_proj.weight", "model.layers.1.mlp.down_proj.weight"):
        statistics = observed.of(first)
        assert statistics is not None
        before, after = statistics.maximum, statistics.maximum / found.scales[first]
        assert before.max() / np.median(before) > 20
        assert after.max() / np.median(after) < 5


def test_equal_inputs_give_equal_bytes(folder: Path) -> None:
    again = _search(folder, "q4f32_1", folder / "again")
    assert again.read_bytes() == _scales(folder, "q4f32_1").read_bytes()


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, STEPS), st.lists(st.floats(1e-30, 1e30), min_size=1, max_size=9))
def test_powers_are_right(steps: int, numbers: list[float]) -> None:
    array = np.array(numbers)
    np.testing.assert_allclose(power(array, steps / STEPS), array ** (steps / STEPS), rtol=1e-13)


def _rows(seed: int, count: int, columns: int, spread: float) -> Array:
    random = np.random.default_rng(seed)
    wide = np.exp(spread * random.standard_normal(columns))
    mixed = random.standard_normal((count, columns)) @ random.standard_normal((columns, columns)) / columns**0.5
    return (mixed * wide).astype(np.float32)


def _gram(rows: Array) -> Array:
    wide = rows.astype(np.float64)
    return (wide.T @ wide).astype(np.float32)


SEEDS = st.integers(0, 1 << 30)


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.sampled_from((33, 64, 96)), st.floats(0, 3))
def test_measured_errors_are_right_in_any_order(seed: int, columns: int, spread: float) -> None:
    random = np.random.default_rng(seed)
    gram = _gram(_rows(seed, 50, columns, spread))
    delta = random.standard_normal((40, columns)).astype(np.float32)
    expected = float(np.trace(delta.astype(np.float64) @ gram @ delta.T.astype(np.float64)))
    found = MeasuredError(gram).total(delta)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    order = random.permutation(columns)
    assert MeasuredError(np.ascontiguousarray(gram[np.ix_(order, order)])).total(delta[:, order]) == found


class _Case:
    """Matrices that share an input of two heads of queries for each of values, in a shard."""

    def __init__(self, folder: Path, seed: int, columns: int, spread: float, quantization: str) -> None:
        random = np.random.default_rng(seed)
        self.rows = _rows(seed, 64, columns, spread)
        scheme = schemes.scheme(quantization)
        self.rounding = Rounding(scheme=scheme, encoder=schemes.encoder(scheme))
        self.weights = {
            name: (random.standard_normal((40, columns)) / columns**0.5).astype(np.float32)
            for name in ("first.weight", "second.weight")
        }
        self.parameters = [schemes.matrix(array.shape, name=name) for name, array in self.weights.items()]
        self.smoothed = SmoothedInput(
            matrices=tuple(self.weights),
            absorbed_by=(Absorber(parameter="norm.weight"),),
            channels=columns // 2,
            width=columns // 4,
            repeats=2,
        )
        folder.mkdir(exist_ok=True)
        self.gram = _gram(self.rows)
        write_input(
            folder / "input",
            gram=self.gram,
            absolute_sum=np.abs(self.rows).sum(axis=0),
            maximum=np.abs(self.rows).max(axis=0),
        )
        seen = ObservedInput(file="input", matrices=tuple(self.weights), width=columns, rows=len(self.rows))
        write_index(folder, tokens=len(self.rows), inputs=[seen])
        found = Statistics(folder).of("first.weight")
        assert found is not None
        self.statistics = found

    def search(self) -> Array | None:
        return search_scales(self.smoothed, self.statistics, _InMemory(self), self.rounding)

    def error(self, columns: Array) -> float:
        """The squared error of the outputs of the rows, by themselves."""
        total = 0.0
        for parameter in self.parameters:
            weight = self.weights[parameter.name]
            rounded = self.rounding(parameter, weight * columns)
            assert rounded is not None
            delta = (rounded / columns - weight).astype(np.float64)
            total += float(((self.rows.astype(np.float64) @ delta.T) ** 2).sum())
        return total


class _InMemory(ModelMatrices):
    def __init__(self, case: _Case) -> None:
        self._case = case

    def parameter(self, name: str) -> Parameter:
        return next(one for one in self._case.parameters if one.name == name)

    def numbers(self, name: str) -> Iterator[Array]:
        yield self._case.weights[name]

    def sample(self, name: str) -> list[Array]:
        return [self._case.weights[name][:8]]  # few rows, which may mislead


@settings(max_examples=20, deadline=None)
@given(SEEDS, st.sampled_from((64, 128)), st.floats(0, 3), st.sampled_from(("q4f32_1", "q3f16_1", "q4f16_autoawq")))
def test_scales_never_make_the_error_larger(
    tmp_path_factory: pytest.TempPathFactory, seed: int, columns: int, spread: float, quantization: str
) -> None:
    columns = 160 if quantization == "q3f16_1" else columns
    case = _Case(tmp_path_factory.mktemp("case"), seed, columns, spread, quantization)
    found = case.search()
    if found is not None:
        assert np.isclose(found.max() * found.min(), 1, rtol=1e-5)
        assert case.error(of_columns(found, case.smoothed)) <= case.error(np.ones(columns, np.float32)) * 1.0001


@settings(max_examples=20, deadline=None)
@given(SEEDS, st.sampled_from((64, 128)), st.floats(0, 3), st.sampled_from(("q4f32_1", "q3f16_1", "q4f16_autoawq")))
def test_clipping_never_makes_a_group_worse(
    tmp_path_factory: pytest.TempPathFactory, seed: int, columns: int, spread: float, quantization: str
) -> None:
    columns = 160 if quantization == "q3f16_1" else columns
    case = _Case(tmp_path_factory.mktemp("case"), seed, columns, spread, quantization)
    parameter, size = case.parameters[0], case.rounding.group_size(case.parameters[0])
    weight = case.weights[parameter.name]
    fractions = search_clipping(parameter, weight, MeasuredGroups(case.gram, size), case.rounding)

    def errors(changed: Array) -> Array:
        rounded = case.rounding(parameter, changed)
        assert rounded is not None
        delta = (rounded - weight).astype(np.float64)
        parts = range(0, columns, size)
        return np.stack([((case.rows[:, p : p + size] @ delta[:, p : p + size].T) ** 2).sum(axis=0) for p in parts], 1)

    before, after = errors(weight), errors(clipped(weight, fractions, size))
    assert fractions.min() >= WHOLE // 2
    assert (after <= before * 1.001 + 1e-9 * before.max()).all()
    assert (after[fractions == WHOLE] == before[fractions == WHOLE]).all()
