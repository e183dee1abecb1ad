"""Kernels that are written for GPUs go the way of all kernels to machine code, for each architecture."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tvm import tirx

from mlcbuild.compiler.backends.cuda.kernels import logits, norm, sampling
from mlcbuild.compiler.backends.cuda.schedule import SCHEDULING
from mlcbuild.compiler.backends.cuda.stages import compile_device, compile_kernel
from mlcbuild.compiler.passes.canonical_kernel import canonicalize
from mlcbuild.compiler.stages import list_candidates, schedule_kernel
from mlcbuild.runtime.measuring.candidate_list import CandidateList
from tests.compiler.kernel_running import packed_product, plain_product
from tests.compiler.pipeline import CUDA_TARGET

KERNELS: dict[str, Callable[[], tirx.PrimFunc]] = {
    "norm": lambda: norm.rms_norm(4096, "float16", 1e-5),
    "sum and norm": lambda: norm.add_rms_norm(4096, "float16", 1e-5),
    "sum and norm of odd rows": lambda: norm.add_rms_norm(4097, "float32", 1e-5),
    "biases": logits.add_bias,
    "penalties": logits.penalize,
    "masks": logits.mask,
    "scattered rows": lambda: logits.scatter_rows("float32"),
    "gathered rows": lambda: logits.gather_rows("float32"),
    "sampling": sampling.sample_by_number,
    "sampling with top-p": sampling.sample_top_p,
    "drafts": sampling.verify_drafts,
}


@pytest.mark.parametrize("name", KERNELS)
def test_it_is_one_launch_with_machine_code_for_each_architecture(tmp_path: Path, name: str) -> None:
    target: dict[str, Any] = {"target": dict(CUDA_TARGET)}
    kernel = canonicalize(KERNELS[name]())
    at = tmp_path.joinpath
    at("kernel.json").write_bytes(kernel.data)
    schedule_kernel.run(
        kernel=at("kernel.json"),
        scheduled=at("scheduled.json"),
        signature=at("signature"),
        optimized=True,
        backend=SCHEDULING,
        **target,
    )
    compile_kernel.run(
        scheduled=at("scheduled.json"),
        object=at("kernel.o"),
        device_source=at("kernel.cu"),
        launch=at("launch.json"),
        **target,
    )
    assert at("kernel.cu").read_text().count("__launch_bounds__") == 2  # its declaration and itself
    for architecture in ("sm_80", "sm_90"):
        compile_device.run(source=at("kernel.cu"), cubin=at("cubin"), arch=architecture)
        assert f"{kernel.name}_kernel".encode() in at("cubin").read_bytes()


@pytest.mark.parametrize(
    ("product", "shape"),
    [
        (packed_product, {"vectors": 128, "stages": 6, "cluster": 4}),
        (plain_product, {"vectors": 64, "stages": 3, "cluster": 8}),
        pytest.param(packed_product, {"vectors": 256, "stages": 5, "cluster": 2}, marks=pytest.mark.exhaustive),
        pytest.param(plain_product, {"vectors": 256, "stages": 3, "cluster": 1}, marks=pytest.mark.exhaustive),
    ],
)
def test_tiles_that_can_be_chosen_are_listed_and_have_machine_code(
    tmp_path: Path, product: Callable[..., tirx.PrimFunc], shape: dict[str, int]
) -> None:
    target: dict[str, Any] = {"target": {**CUDA_TARGET, "arch": "sm_90a"}}
    kernel = canonicalize(product(256, 4096, None, dtype="float16"))
    at = tmp_path.joinpath
    at("kernel.json").write_bytes(kernel.data)
    list_candidates.run(kernel=at("kernel.json"), candidates=at("list.json"), backend=SCHEDULING, **target)
    listed = CandidateList.read(json.loads(at("list.json").read_text()))
    assert listed.rule == "cuda.matmul:3"
    assert listed.shapes[0] == {"vectors": 0, "stages": 4, "cluster": 1}, "the default: sizes choose"
    assert shape in listed.shapes
    assert [set(each.values()) for each in listed.sizes] == [{32}, {64}, {128}], "for which a tile can be chosen"
    schedule_kernel.run(
        kernel=at("kernel.json"),
        scheduled=at("scheduled.json"),
        signature=at("signature"),
        optimized=True,
        backend=SCHEDULING,
        tuned={"rule": listed.rule, "shape": shape, "record": ""},
        **target,
    )
    compile_kernel.run(
        scheduled=at("scheduled.json"),
        object=at("kernel.o"),
        device_source=at("kernel.cu"),
        launch=at("launch.json"),
        **target,
    )
    kind = "packed" if product is packed_product else "halves"
    assert f"mlcbuild_multiply_tile_{kind}_{shape['vectors']}_2_{shape['stages']}(" in at("kernel.cu").read_text()
    compile_device.run(source=at("kernel.cu"), cubin=at("cubin"), arch="sm_90a")
    assert f"{kernel.name}_kernel".encode() in at("cubin").read_bytes()
