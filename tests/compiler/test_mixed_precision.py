"""Models whose matrices are stored by several schemes: what they compute, and what they share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcbuild.compiler import ir
from mlcbuild.compiler.models.description import Layers
from mlcbuild.compiler.quantization.mixed.layers import with_precision
from mlcbuild.compiler.quantization.mixed.precision import Precision, parse_precision, read_precision, write_precision
from mlcbuild.compiler.quantization.mixed.scheme import MixedScheme
from mlcbuild.compiler.stages import export
from mlcbuild.compiler.stages import with_precision as with_precision_stage
from mlcbuild.errors import StageError
from tests.compiler import schemes
from tests.compiler.parity import check_logits
from tests.compiler.resolving import model_builders, parameters_of, write_assigned, write_resolved
from tests.compiler.test_llama_parity import MODELS

_LLAMA: dict[str, Any] = MODELS["grouped-64-tied"]
_TABLE = {"default": "q4f16_1", "model.embed_tokens": "q8f16_1", "model.layers.1.mlp.down_proj": "q8f16_1"}


@pytest.mark.slow
def test_a_mixed_model_computes_what_its_weights_stand_for(tmp_path: Path, kernel_store: Path) -> None:
    check_logits(_LLAMA, _TABLE, tmp_path, kernel_store=kernel_store)
    metadata = json.loads((tmp_path / "metadata.json").read_text())
    assert metadata["quantization"] == "q4f16_1+q8f16_1"
    shapes = {parameter["name"]: tuple(parameter["shape"]) for parameter in metadata["params"]}
    assert shapes["model.layers.1.mlp.down_proj.q_weight"] == (192, 192 // 4)
    assert shapes["model.layers.2.mlp.down_proj.q_weight"] == (192, 192 // 8)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_model_of_four_schemes_computes_what_its_weights_stand_for(tmp_path: Path, kernel_store: Path) -> None:
    table = {
        "default": "q4f16_1",
        "lm_head": "q8f16_1",
        "model.layers.*.mlp.down_proj": "q8f16_1",
        "model.layers.2.self_attn.*": "q0f16",
        "model.layers.2.mlp.down_proj": "q4f16_0",
    }
    config = _LLAMA | {"num_hidden_layers": 4, "tie_word_embeddings": False}
    check_logits(config, table, tmp_path, kernel_store=kernel_store)


def test_layers_of_equal_precision_are_exported_once(tmp_path: Path) -> None:
    functions = {}
    for layers in (4, 8):
        directory = tmp_path / str(layers)
        directory.mkdir()
        write_resolved(directory, _LLAMA | {"num_hidden_layers": layers})
        scheme = write_assigned(directory, _TABLE)
        kinds = json.loads((directory / "model.json").read_text())["layers"]["kinds"]
        assert kinds == [f"precision {int(number == 1)}" for number in range(layers)]
        export.run(
            model=directory / "model.json",
            parameters=directory / "parameters.json",
            models=model_builders(),
            module=directory / "export.json",
            metadata=directory / "metadata.json",
            scheme=scheme,
            reader=schemes.reader_class(scheme),
        )
        functions[layers] = [one.name_hint for one in ir.load_module(directory / "export.json").get_global_vars()]
        assert json.loads((directory / "metadata.json").read_text())["shown_layers"] == [0, 1, layers - 1]
    assert len(functions[4]) == len(functions[8])


def test_layers_keep_their_own_kinds_and_those_of_one_precision_are_as_they_were() -> None:
    layers = Layers(name="model.layers", count=4, kinds=("full", "state", "full", "state"), recurrent=("state",))
    assert with_precision(layers, _mixed({"lm_head": "q8f16_1"})) is layers
    assert with_precision(layers, _mixed({f"model.layers.{n}.up.weight": "q8f16_1" for n in (1, 3)})) is layers
    split = with_precision(layers, _mixed({"model.layers.3.up.weight": "q8f16_1"}))
    assert split.kinds == ("full precision 0", "state precision 0", "full precision 0", "state precision 1")
    assert split.recurrent == ("state precision 0", "state precision 1")
    assert [split.place(number) for number in range(4)] == [layers.place(number) for number in range(4)]


def test_a_name_decides_before_any_pattern_and_of_patterns_the_first() -> None:
    precision = Precision.of_table(
        {
            "model.*.down_proj": "q8f16_1",
            "default": "q4f16_1",
            "model.layers.1.*": "q0f16",
            "model.layers.0.down_proj.weight": "q4f16_0",
        }
    )
    assert precision.scheme("model.layers.0.down_proj.weight") == "q4f16_0"
    assert precision.scheme("model.layers.1.down_proj.weight") == "q8f16_1"
    assert precision.scheme("model.layers.1.up_proj.weight") == "q0f16"
    assert precision.scheme("model.layers.11.up_proj.weight") == "q4f16_1"
    names = [f"model.layers.{n}.{own}.weight" for n in range(2) for own in ("up_proj", "down_proj")]
    assert precision.assigned(names).table == {
        "default": "q4f16_1",
        "model.layers.0.down_proj.weight": "q4f16_0",
        "model.layers.1.up_proj.weight": "q0f16",
        "model.layers.1.down_proj.weight": "q8f16_1",
    }


@pytest.mark.parametrize("key", ["lm_head", "model.layers.7.*", "model.norm", "*.down_proj.bias"])
def test_a_key_that_decides_about_no_matrix_is_an_error_that_names_some(key: str) -> None:
    with pytest.raises(StageError) as caught:
        schemes.mixed(_LLAMA, {"default": "q4f16_1", key: "q8f16_1"})
    assert caught.value.message == f'no matrix of the model is "{key}", or an earlier pattern has all that are'
    assert "model.embed_tokens, model.layers.0.self_attn.qkv_proj" in caught.value.advice[0]


def test_a_pattern_behind_one_that_has_all_of_its_matrices_is_an_error() -> None:
    with pytest.raises(StageError, match="an earlier pattern has all"):
        schemes.mixed(_LLAMA, {"default": "q4f16_1", "*_proj": "q8f16_1", "*.down_proj": "q0f16"})


def test_schemes_that_compute_in_different_types_do_not_go_together() -> None:
    with pytest.raises(StageError, match="q4f16_1 computes in float16 and q8f32_1 in float32"):
        schemes.mixed(_LLAMA, {"default": "q4f16_1", "*.down_proj": "q8f32_1"})


def test_every_matrix_is_encoded_and_decoded_by_its_own_scheme() -> None:
    mixed = schemes.mixed(_LLAMA, _TABLE)
    encoder = schemes.encoder(mixed)
    generator = np.random.default_rng(1)
    for parameter in parameters_of(_LLAMA).parameters:
        own = schemes.scheme(mixed.precision.scheme(parameter.name))
        assert mixed.stored(parameter) == own.stored(parameter)
        numbers = generator.normal(0, 1, parameter.shape).astype(np.float16)
        arrays = encoder.encode(parameter, numbers)
        for found, expected in zip(arrays, schemes.encoder(own).encode(parameter, numbers), strict=True):
            np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(encoder.decode(parameter, arrays), schemes.encoder(own).decode(parameter, arrays))


def test_a_precision_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    precision = Precision.of_table(_TABLE)
    write_precision(precision, tmp_path / "precision.json", measured={"bytes": 5})
    assert read_precision(tmp_path / "precision.json") == precision
    assert '\n    "default": "q4f16_1",\n' in (tmp_path / "precision.json").read_text()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "is not valid JSON"),
        ("[]", "is no precision.json of version 1"),
        ('{"version": 2, "quantization": {"default": "q4f16_1"}}', "is no precision.json of version 1"),
        ('{"version": 1, "quantization": ["q4f16_1"]}', 'has no object "quantization"'),
        ('{"version": 1, "quantization": {"default": 4}}', 'has no object "quantization"'),
        ('{"version": 1, "quantization": {"lm_head": "q4f16_1"}}', 'lacks "default"'),
    ],
)
def test_a_file_that_is_no_precision_is_refused(content: str, told: str) -> None:
    with pytest.raises(StageError, match=told):
        parse_precision(content.encode(), where="precision.json")


def test_any_stage_is_called_with_the_scheme_that_the_file_makes(tmp_path: Path) -> None:
    write_precision(Precision.of_table(_TABLE), tmp_path / "precision.json")
    given: dict[str, Any] = {}
    named = [schemes.scheme(name) for name in ("q8f16_1", "q4f16_1")]
    with_precision_stage.run(
        stage=lambda **arguments: given.update(arguments),
        precision=tmp_path / "precision.json",
        schemes=named,
        encoder=lambda scheme, encoders: (scheme.name, encoders),
        encoders=(dict,),
        shard=Path("shard"),
    )
    assert given.pop("encoder")(given["scheme"]) == ("q4f16_1+q8f16_1", (dict,))
    assert given == {"scheme": given["scheme"], "shard": Path("shard")}


def _mixed(choices: dict[str, str]) -> MixedScheme:
    precision = Precision(default="q4f16_1", choices=tuple(choices.items()))
    return MixedScheme(precision=precision, schemes=tuple(map(schemes.scheme, precision.schemes)))
