"""What says nothing of what is built, and runs nothing."""

from __future__ import annotations

from tests.end_to_end.what_runs.edits import appended, argument, build_file, code, example_of, variable
from tests.end_to_end.what_runs.model_edits import other_docstring, renamed_model, touched
from tests.end_to_end.what_runs.rows import row

NOTHING = (
    row("a comment in BUILD.toml", appended("BUILD.toml", "# A comment.\n")),
    row("another order", build_file('"q4f16_1"\nplatform = ":gpu"', '"q4f16_1"\ntags = []\nplatform = ":gpu"')),
    row("one target more", appended("BUILD.toml", '\n[[filegroup]]\nname = "more"\nsrcs = ["text"]\n')),
    row("another name", build_file('name = "package"', 'name = "renamed"')),
    row("another name of a model", renamed_model),
    row("a tag", build_file('name = "library"', 'name = "library"\ntags = ["nightly"]')),
    row("an old file touched", touched),
    row("one job", argument("--jobs", "1")),
    row("keep going", argument("--keep-going")),
    row("another configuration of the same values", argument("--config", "same")),
    row("another home", variable("HOME", "/nonexistent")),
    row("another locale", variable("LC_ALL", "C")),
    row("another time zone", variable("TZ", "<+14>-14")),
    row("another hash seed", variable("PYTHONHASHSEED", "7")),
    row("threads", variable("OMP_NUM_THREADS", "7")),
    row("another toolkit of the user's", variable("CUDA_PATH", "/opt/cuda")),
    row("another path", variable("PATH", "/usr/bin:/bin:/opt/bin")),
    row("a comment in a pass", code("compiler/passes/fuse_transpose_matmul", "\n# A comment.\n")),
    row("a docstring in a stage", other_docstring),
    row("code of the command line", code("cli/main")),
    row("code of the engine", code("engine/scheduler")),
    row("code of a rule", code("rules/model_library")),
    row("code of the workspace", code("workspace/loader")),
    row("code of the executor", code("execution/local")),
    row("code of the store", code("cache/disk")),
    row("code that runs packages", code("runtime/model")),
    row("a backend added", example_of("backends.md")),
    row("a scheme added", example_of("quantization.md")),
    row("code of a scheme that no target has", code("compiler/quantization/schemes/q0f16")),
)  # fmt: skip
