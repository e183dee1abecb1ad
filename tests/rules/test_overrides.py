"""Overrides of a library: a wrong one is told when the workspace is loaded, at its own place."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcbuild.compiler.models.sizes import Overrides
from mlcbuild.errors import StageError, WorkspaceErrors
from mlcbuild.rules.model_library import OVERRIDES
from mlcbuild.rules.registry import load_rules
from mlcbuild.workspace.schema import AttributeKind
from tests.rules.world import analysed, write

LIBRARY = """
[[platform]]
name = "cpu"
kind = "cpu"
cpu = "x86-64-v3"

[[model]]
name = "m"
config = "config.json"

[[model_library]]
name = "l"
model = ":m"
quantization = "q0f32"
platform = ":cpu"
"""
TOLD = """\
a/BUILD.toml:16:32: "max_batch_size" must be from 1 to 65536, not 0, in "overrides" of //a:l
a/BUILD.toml:16:35: unknown key "bogus" in "overrides" of //a:l
  known: context_window_size, prefill_chunk_size, max_batch_size, sliding_window_size, attention_sink_size, \
tensor_parallel_shards
a/BUILD.toml:16:67: "prefill_chunk_size" must be an integer, not the string "64", in "overrides" of //a:l
a/BUILD.toml:16:98: "tensor_parallel_shards" must be 1, not 2, in "overrides" of //a:l
a/BUILD.toml:16:101: unknown key "context_windw_size" in "overrides" of //a:l
  known: context_window_size, prefill_chunk_size, max_batch_size, sliding_window_size, attention_sink_size, \
tensor_parallel_shards        did you mean "context_window_size"?"""


def test_every_wrong_override_is_told_at_its_own_place(tmp_path: Path) -> None:
    written = (
        'overrides = { max_batch_size = 0, bogus = 1, prefill_chunk_size = "64", tensor_parallel_shards = 2, '
        "context_windw_size = 64 }\n"
    )
    root = write(tmp_path, {"a/BUILD.toml": LIBRARY + written, "a/config.json": "{}"})
    with pytest.raises(WorkspaceErrors) as caught:
        analysed(root, "//a:l")
    assert str(caught.value) == TOLD


@pytest.mark.parametrize("name", [member.name for member in OVERRIDES.fields])
def test_the_ends_of_a_range_are_those_of_the_compiler(name: str) -> None:
    (member,) = (member for member in OVERRIDES.fields if member.name == name)
    assert member.minimum is not None
    assert member.maximum is not None
    for value in (int(member.minimum), int(member.maximum)):
        assert getattr(Overrides.parse({name: value}), name) == value
    for value in (int(member.minimum) - 1, int(member.maximum) + 1):
        with pytest.raises(StageError):
            Overrides.parse({name: value})


def test_no_table_of_a_built_in_rule_takes_any_key(tmp_path: Path) -> None:
    """But for those whose keys are labels, or names in a file of the user's, which their rules or that file check."""
    free = [
        f"{rule.schema.name}.{attribute.name}"
        for rule in load_rules(tmp_path, ()).values()
        for attribute in rule.schema.attributes
        if attribute.kind is AttributeKind.TABLE and not attribute.fields
    ]
    assert free == [
        "compile_comparison.sizes",
        "max_model.arguments",
        "model.lora_shares",
        "onnx_model.sizes",
        "stablehlo_module.arguments",
        "tensorrt_engine.sizes",
        "torch_model.arguments",
        "triton_kernel.constexprs",
    ]
