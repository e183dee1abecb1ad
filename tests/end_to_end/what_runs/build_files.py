"""The workspaces that rows change."""

from __future__ import annotations

BUILD_FILE = """\
[workspace]
name = "example"

[configuration.same]

[[tool]]
name = "sh"
path = "/bin/sh"

[[platform]]
name = "cpu"
kind = "cpu"
cpu = "x86-64-v2"

[[platform]]
name = "gpu"
kind = "cuda"
arch = ["sm_80"]

[[model]]
name = "weights"
source = "tiny.gguf"

[[model]]
name = "shape"
config = "config.json"

[[model_package]]
name = "package"
model = ":weights"
quantization = "q4f32_1"
platform = ":cpu"
opt = "O2"
overrides = { context_window_size = 64, prefill_chunk_size = 16, max_batch_size = 4 }

[[model_library]]
name = "library"
model = ":shape"
quantization = "q4f16_1"
platform = ":gpu"

[[command]]
name = "noted"
tool = ":sh"
inputs = ["text"]
outputs = ["out"]
arguments = ["-c", "cat $1 > $2", "noted", "{inputs}", "{outputs}"]
"""
# A library of the backend that docs/backends.md adds, with the toolchain of docs/toolchains.md; and a check that it
# says what that of the kind cpu says.
PLAIN = """
[[platform]]
name = "plain"
kind = "plain"
cpu = "x86-64-v2"
level = 1

[[model_package]]
name = "plain-package"
model = ":weights"
quantization = "q4f32_1"
platform = ":plain"
overrides = { context_window_size = 64, prefill_chunk_size = 16, max_batch_size = 4 }

[[logits_test]]
name = "same"
package = ":plain-package"
reference = ":package"
prompts = ["a b c"]
tolerance = 0.01
"""
TRITON_BUILD_FILE = """\
[workspace]
name = "example"

[[platform]]
name = "triton"
kind = "cuda"
arch = ["sm_80"]
kernels = "triton"

[[model]]
name = "shape"
config = "config.json"

[[model_library]]
name = "library"
model = ":shape"
quantization = "q4f16_1"
platform = ":triton"
"""
