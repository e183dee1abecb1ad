"""Changes of a workspace: of its files, of attributes of its targets, and of its platforms."""

from __future__ import annotations

from tests.end_to_end.what_runs.edits import appended, build_file
from tests.end_to_end.what_runs.model_edits import (
    config,
    fewer_tokens,
    longer_context,
    made_executable,
    other_weights,
    own_config,
    reformatted,
)
from tests.end_to_end.what_runs.rows import CODE, DEVICE, IMPORT, KERNELS, READ, SIZES, WEIGHTS, row

OF_WORKSPACES = (
    # Files.
    row("an executable source", made_executable, *IMPORT),
    row("other weights", other_weights, "ImportConfig", *WEIGHTS),
    row("a tokenizer of fewer tokens", fewer_tokens, *IMPORT, "GenConfig", "Lower", "Link"),
    row("a config reformatted", reformatted, "ResolveModel"),
    row("a context length", longer_context, *READ, "Lower", "Link"),
    row("a context length beside weights", own_config, *READ, "GenConfig", "Lower"),
    # One kernel has the number of layers in it: the cache's own for looking at all layers in a debugger.
    row("one layer more", config(num_hidden_layers=3), *READ, *CODE, *DEVICE),
    row("a wider model", config(intermediate_size=128), *READ, *CODE, *DEVICE),
    row("the input of a command", appended("text", "two\n"), "Command"),
    # Attributes.
    row("the arguments of a command", build_file("cat $1 > $2", "cat $1 >> $2"), "Command"),
    row("a context", build_file("context_window_size = 64", "context_window_size = 96"), *SIZES),
    row("a batch", build_file("max_batch_size = 4", "max_batch_size = 8"), *SIZES),
    row("a chunk", build_file("prefill_chunk_size = 16", "prefill_chunk_size = 32"), *SIZES),
    row("an encoding", build_file('opt = "O2"', 'opt = "O2"\nencode = "f32-to-bf16"'), "Quantize", "IndexWeights"),
    row(
        "a quantization", build_file('"q4f32_1"', '"q0f32"'),
        "ConfigureModel", "Quantize", "IndexWeights", "GenConfig", "Export", *CODE,
    ),
    # The metadata says that kernels are not scheduled.
    row("a level", build_file('opt = "O2"', 'opt = "O0"'), *KERNELS, "Lower", "Link"),
    row("a level that does the same", build_file('opt = "O2"', 'opt = "O3"')),
    row("no CUDA graph where there is none", build_file('opt = "O2"', 'opt = "O1"')),
    # Platforms.
    # Kernels are the same before they are scheduled, so that Partition, which does not know the target, does not run.
    # (With AVX-512 attention is another kernel.) No other test builds for this processor: its kernels are in no cache.
    row("a processor", build_file('cpu = "x86-64-v2"', 'cpu = "znver3"'), *CODE - {"Partition"}),
    row("an architecture", build_file('["sm_80"]', '["sm_86"]'), *CODE - {"Partition"}, *DEVICE),
    row("one architecture more", build_file('["sm_80"]', '["sm_80", "sm_90"]'), *DEVICE, "FatBinary", "Link"),
)  # fmt: skip
