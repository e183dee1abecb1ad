"""A model as a library has it: overrides applied, and refused where they or the quantization do not fit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.compiler.models.architecture.window import SlidingWindow, read_window
from mlcbuild.compiler.models.configuring import configure
from mlcbuild.compiler.models.description import ModelDescription, read_model
from mlcbuild.compiler.models.resolving import resolve
from mlcbuild.errors import StageError
from mlcbuild.rules.checkpoint_formats import formats
from mlcbuild.rules.families import families
from mlcbuild.rules.schemes import scheme
from tests.compiler.resolving import write_configured, write_resolved
from tests.compiler.tiny_models import TINY


def configured(
    directory: Path, overrides: Mapping[str, object], *, quantization: str = "q0f32", **changes: object
) -> ModelDescription:
    write_resolved(directory, {**TINY, **changes})
    write_configured(directory, quantization, overrides)
    return read_model(directory / "configured.json")


def test_overrides_replace_sizes_and_nothing_else(tmp_path: Path) -> None:
    overrides = {"context_window_size": 64, "prefill_chunk_size": 16, "max_batch_size": 2}
    found = configured(tmp_path, overrides)
    assert {name: getattr(found.sizes, name) for name in overrides} == overrides
    assert {name: found.model_config[name] for name in overrides} == overrides
    before = read_model(tmp_path / "model.json")
    assert (found.family, found.limits, found.configuration) == (before.family, before.limits, before.configuration)


def test_parameters_are_handed_on_as_they_are(tmp_path: Path) -> None:
    configured(tmp_path, {"max_batch_size": 2})
    handed_on = (tmp_path / "parameters.configured.json").read_bytes()
    assert handed_on == (tmp_path / "parameters.json").read_bytes()


def test_a_shorter_context_shortens_the_prefill_chunk(tmp_path: Path) -> None:
    assert configured(tmp_path, {"context_window_size": 8}).sizes.prefill_chunk_size == 8


def test_a_model_with_a_window_can_be_made_without(tmp_path: Path) -> None:
    window: Any = {"model_type": "mistral", "sliding_window": 32}
    sizes = configured(tmp_path, {"sliding_window_size": -1}, **window).sizes
    assert (sizes.sliding_window_size, sizes.context_window_size, sizes.attention_sink_size) == (-1, 128, 0)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"context_window": 64}, 'unknown override "context_window"(.|\n)*did you mean "context_window_size"'),
        ({"context_window_size": "64"}, '"context_window_size" is "64"'),
        ({"context_window_size": -1}, "only a model with a sliding window"),
        ({"prefill_chunk_size": 256}, "prefill_chunk_size is 256; it has to be from 1 to the context_window_size"),
        ({"tensor_parallel_shards": 2}, '"tensor_parallel_shards" is 2; it has to be from 1 to 1'),
        ({"sliding_window_size": 16}, 'a model of type "llama" has no sliding window'),
    ],
)
def test_bad_override_is_told(tmp_path: Path, overrides: Mapping[str, object], message: str) -> None:
    with pytest.raises(StageError, match=message):
        configured(tmp_path, overrides)


def test_a_prefill_may_be_longer_than_the_window(tmp_path: Path) -> None:
    window: Any = {"model_type": "mistral", "sliding_window": 32}
    assert configured(tmp_path, {"prefill_chunk_size": 100}, **window).sizes.prefill_chunk_size == 100
    with pytest.raises(StageError, match="prefill_chunk_size is 100; it has to be from 1 to the context_window_size"):
        configured(tmp_path, {"prefill_chunk_size": 100, "context_window_size": 64}, **window)
    with pytest.raises(StageError, match="context_window_size is 0"):
        configured(tmp_path, {"context_window_size": 0}, **window)


def test_kernels_are_told_of_the_window_and_of_nothing_else(tmp_path: Path) -> None:
    written = []
    for model_type, overrides in (
        ("llama", {}),
        ("llama", {"context_window_size": 64, "max_batch_size": 2}),
        ("mistral", {"sliding_window_size": -1}),
        ("mistral", {}),
        ("mistral", {"prefill_chunk_size": 8}),
        ("mistral", {"attention_sink_size": 4}),
    ):
        configured(tmp_path, overrides, model_type=model_type, sliding_window=32)
        written.append((tmp_path / "window.json").read_bytes())
    assert len(set(written[:3])) == 1
    assert written[3] == written[4]
    assert len(set(written)) == 3
    assert read_window(tmp_path / "window.json") == SlidingWindow(size=32, sink=4)


def test_a_window_that_a_platform_has_no_kernels_for_is_refused() -> None:
    model, parameters = resolve({**TINY, "model_type": "mistral", "sliding_window": 32}, families(), formats())
    for overrides, told in (
        ({}, ["the platform has no kernels for a sliding window, which is 32 tokens here"]),
        ({"sliding_window_size": -1}, []),
    ):
        _, invalid = configure(model, parameters, scheme=scheme("q0f32"), overrides=overrides, sliding_windows=False)
        assert [one.error.message for one in invalid] == told


def test_a_sink_as_long_as_the_window_is_told(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="attention_sink_size is 32; it has to be smaller"):
        configured(tmp_path, {"attention_sink_size": 32}, model_type="mistral", sliding_window=32)


def test_a_group_that_does_not_divide_a_matrix_is_told_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"model\.layers\.0\.mlp\.down_proj\.weight has 80 columns"):
        configured(tmp_path, {}, quantization="q4f16_1", intermediate_size=80)
