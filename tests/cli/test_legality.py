"""`mlcbuild info --legal` prints the table that errors quote."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import pytest

from mlcbuild.cli.main import main
from mlcbuild.engine.action import JsonValue
from mlcbuild.rules import schemes
from mlcbuild.rules.backend import backends
from mlcbuild.rules.backends.cuda import CudaPlatform
from mlcbuild.rules.families import families
from mlcbuild.rules.legality import dtype_error, legality


@dataclass(frozen=True, kw_only=True)
class Scheme:
    name: str
    model_dtype: str


def test_every_combination_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--legal"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["FAMILY", "QUANTIZATION", "KIND", "LEGAL"]
    found = [tuple(line.split()[:3]) for line in lines]
    assert found == [
        (family.name, scheme, kind) for family in families() for scheme in schemes.NAMES for kind in backends()
    ]


def test_json_has_the_reason_in_a_field(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--legal", "--output=json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {"family": "llama", "quantization": "q4f16_1", "kind": "cuda", "is_legal": True, "note": ""} in rows


def test_what_a_backend_has_no_kernels_for_is_illegal_and_says_why() -> None:
    llama = next(family for family in families() if family.name == "llama")
    cpu = backends()["cpu"]
    scheme = schemes.scheme("q4f16_1")
    without_halves = replace(cpu, model_dtypes={"float32": ""})
    assert legality(llama, scheme, cpu).is_legal
    assert legality(llama, scheme, without_halves).note == (
        "q4f16_1 computes in float16, which kind cpu has no kernels for"
    )
    without_states = replace(cpu, kv_state_kinds=("kv_cache",))
    stateful = replace(llama, kv_state_kind="rnn_state")
    note = legality(stateful, scheme, without_states).note
    assert note == "kind cpu has no kernels for the rnn_state of models of the family llama"


def test_a_platform_may_lack_a_type_that_its_kind_has() -> None:
    scheme = Scheme(name="bf16", model_dtype="bfloat16")
    target: dict[str, JsonValue] = {"kind": "cuda", "host": {"mtriple": "x86_64-linux-gnu"}}
    old, new = (CudaPlatform(kind="cuda", target=target, architectures=(arch,)) for arch in ("sm_75", "sm_80"))
    assert dtype_error(scheme, new) is None  # type: ignore[arg-type]  # It looks at two fields alone.
    assert dtype_error(scheme, old) == "bf16 computes in bfloat16: sm_75 has no bfloat16, sm_80 is the first"  # type: ignore[arg-type]
