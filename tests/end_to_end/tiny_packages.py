"""Targets that compile the tiny model for CPUs and for GPUs, to stand below a `[workspace]` table."""

from __future__ import annotations

MATRIX = """\
matrix = { platform = [":cpu", ":cuda"] }
model = ":model"
quantization = { ":cpu" = "q4f32_1", default = "q4f16_1" }
overrides = { context_window_size = 64, prefill_chunk_size = 16 }
"""
PACKAGES = f"""\

[[model]]
name = "model"
source = "tiny.gguf"

[[platform]]
name = "cpu"
kind = "cpu"
cpu = "x86-64-v3"

[[platform]]
name = "cuda"
kind = "cuda"
arch = ["sm_80", "sm_90"]

[[model_package]]
name = "package-{{platform}}"
{MATRIX}"""
