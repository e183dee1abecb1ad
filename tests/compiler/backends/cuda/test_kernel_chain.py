"""Kernels that are written for GPUs go the way of all kernels to machine code, for each architecture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tvm import tirx

from mlcbuild.compiler.backends.cuda.kernels import logits, norm, sampling
from mlcbuild.compiler.backends.cuda.schedule import SCHEDULING
from mlcbuild.compiler.backends.cuda.stages import compile_device, compile_kernel
from mlcbuild.compiler.passes.canonical_kernel import canonicalize
from mlcbuild.compiler.stages import schedule_kernel
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
