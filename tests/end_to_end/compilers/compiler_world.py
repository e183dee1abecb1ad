"""A workspace with other compilers, each in an environment of its own from pip's index, and models that are compared
with float64."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from mlcbuild.toolchains.entries import processor
from tests.end_to_end.world import Done, World

HERE = Path(__file__).parent
LICENSES = {
    "onnxruntime": "MIT AND Apache-2.0 AND BSD-3-Clause AND PSF-2.0",
    "openvino": "Apache-2.0 AND BSD-3-Clause",
    "iree": "Apache-2.0 AND BSD-3-Clause AND PSF-2.0",
    "jax": "Apache-2.0 AND BSD-3-Clause AND MIT",
    "jax_cuda": "Apache-2.0 AND BSD-3-Clause AND MIT",
    "max": "LicenseRef-MAX-Platform-Software-License AND BSD-2-Clause AND BSD-3-Clause AND MIT AND PSF-2.0",
    "mojo": "LicenseRef-MAX-Platform-Software-License",
    "executorch": "BSD-3-Clause AND Apache-2.0 AND MIT AND PSF-2.0",
    "torch": "BSD-3-Clause AND Apache-2.0 AND MIT AND PSF-2.0",
    "tvm": "Apache-2.0 AND BSD-3-Clause AND PSF-2.0",
}
# What its wheels name and lowering does not import; one of them is no wheel.
WITHOUT = {
    "executorch": [
        "coremltools", "expecttest", "hydra-core", "hypothesis", "kgb", "omegaconf", "pandas", "parameterized",
        "py-cpuinfo", "pytorch-tokenizers", "requests", "scikit-learn",
    ],
}  # fmt: skip
HERE_LEVEL = processor.processor_level(processor.CPUINFO.read_text(), "x86_64")
BOUND = 1e-5  # of an error, against float64
MODELS = ("mlp", "block", "layer")
Value = str | float | list[str] | dict[str, int] | dict[str, list[int]]


class CompilerWorld(World):
    """`compiler` names a lock; the environment of onnx, which writes models, is that of onnxruntime."""

    def __init__(self, folder: Path, *compilers: str) -> None:
        super().__init__(folder)
        # Where wheels come from is what pip is set to, also by variables.
        self.environment.update({name: value for name, value in os.environ.items() if name.startswith("PIP_")})
        shutil.copytree(HERE / "workspace", self.root, dirs_exist_ok=True)
        self.write("checks/BUILD.toml", "")
        self.targets: dict[str, tuple[str, Mapping[str, Value]]] = {}
        for name in ("onnxruntime", *compilers):
            self.write(f"{name}.txt", (HERE / "locks" / f"{name}.txt").read_bytes())
            more = {"without": WITHOUT[name]} if name in WITHOUT else {}
            if LICENSES[name].startswith("LicenseRef-"):
                more["accept_license"] = LICENSES[name].split(" AND ")[:1]  # By whoever runs these tests.
            self.table("python_environment", name, lock=f"{name}.txt", license=LICENSES[name], **more)
        for model in MODELS:
            self.table("written", f"{model}-source", kind=model, environment=":onnxruntime")
            self.table("onnx_model", model, source=f":{model}-source", environment=":onnxruntime")

    def table(self, rule: str, name: str, **attributes: Value) -> None:
        """Add a target, or write it anew."""
        self.targets[name] = (rule, attributes)
        head = '[workspace]\nname = "compilers"\nrules = ["//checks:rules.py"]\n'
        self.write("BUILD.toml", "\n".join([head, *(_table(name, *each) for name, each in self.targets.items())]))

    def edit(self, name: str, **attributes: Value) -> None:
        """Give attributes of a target other values."""
        rule, kept = self.targets[name]
        self.table(rule, name, **{**kept, **attributes})

    def compared(self, name: str, model: str, *, environment: str, runtime: str, ending: str) -> None:
        """Add NAME-error, which measures what the target NAME made of a model."""
        self.table(
            "compared",
            f"{name}-error",
            artifact=f":{name}",
            cases=f":{model}-source",
            environment=environment,
            runtime=runtime,
            ending=ending,
        )

    def error(self, name: str) -> float:
        told = json.loads(self.output(f"{name}-error/error.json").read_text())
        assert told["largest"] > 0.1, "an output of nearly nothing would prove nothing"
        return float(told["error"])


def _table(name: str, rule: str, attributes: Mapping[str, Value]) -> str:
    lines = [f"[[{rule}]]", f'name = "{name}"']
    for attribute, value in attributes.items():
        shown = (
            "{ " + ", ".join(f"{key} = {size}" for key, size in value.items()) + " }"
            if isinstance(value, dict)
            else json.dumps(value)
        )
        lines.append(f"{attribute} = {shown}")
    return "\n".join(lines) + "\n"


def ran(done: Done) -> set[str]:
    """The targets of which a build ran an action."""
    assert done.code == 0, done.err
    return {label.removeprefix("//:") for label, target in done.report["targets"].items() if target["ran"]}
