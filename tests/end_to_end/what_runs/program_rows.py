"""Changes of tools, and of mlcbuild's own code."""

from __future__ import annotations

from tests.end_to_end.what_runs.edits import code, distribution
from tests.end_to_end.what_runs.model_edits import family_added
from tests.end_to_end.what_runs.rows import CODE, DEVICE, FAMILY, IMPORT, WEIGHTS, row

OF_PROGRAMS = (
    # Tools.
    row("another tvm", distribution("apache-tvm"), "Export", *CODE - {"Link"}),
    row("another tvm-ffi", distribution("apache-tvm-ffi"), "Export", *CODE - {"Link"}),
    row("another NVRTC", distribution("nvidia-cuda-nvrtc"), *DEVICE),
    row("another numpy", distribution("numpy"), *WEIGHTS, "ImportConfig"),
    row("another gguf", distribution("gguf"), *IMPORT, "Quantize"),  # which restores blocks that it does not keep
    row("another pytest", distribution("pytest")),
    row("another triton", distribution("triton")),  # as no platform has kernels in it
    # mlcbuild's own code, changed without a change of what it makes: what follows is cut off.
    row("code of Export", code("compiler/stages/export"), "Export"),
    row("a model on TVM", code("compiler/families/llama/model"), "Export"),
    row("a shared part of models", code("compiler/models/layers/attention"), "Export"),
    row("what a family says of its models", code("compiler/families/llama/family"), *FAMILY),
    row("a family added", family_added, *FAMILY),
    row("code of ResolveModel", code("compiler/stages/resolve_model"), "ResolveModel"),
    row("code of ConfigureModel", code("compiler/stages/configure_model"), "ConfigureModel"),
    row("a pass of Phase0", code("compiler/passes/attach_softmax_with_temperature"), "Phase0"),
    row("a pass of Phase1", code("compiler/passes/fuse_transpose_matmul"), "Phase1"),
    row("the list of Phase2", code("compiler/phases/phase2"), "Phase2"),
    row("a pass of Phase3", code("compiler/passes/fuse_dequantize"), "Phase3"),
    row("code of Partition", code("compiler/passes/partition_kernels"), "Partition"),
    row("code of CompileKernel", code("compiler/stages/compile_kernel"), "CompileKernel"),
    row("code of CompileDevice", code("compiler/backends/cuda/nvrtc"), "CompileDevice"),
    row("code of Lower", code("compiler/passes/memory_usage"), "Lower"),
    row("code of Link", code("compiler/stages/link"), "Link"),
    row("code of GenConfig", code("compiler/stages/gen_config"), "GenConfig"),
    row("code of a tokenizer", code("compiler/tokenizer/from_gguf"), "ImportConfig"),
    row("a reader of weights", code("compiler/weights/gguf_weights"), *IMPORT),
    row("code of Quantize", code("compiler/stages/quantize"), "Quantize"),
    row("how NumPy quantizes", code("compiler/quantization/group/encoder"), "Quantize"),
    row("how kernels read a scheme", code("compiler/quantization/group/reader"), "Export"),
)  # fmt: skip
