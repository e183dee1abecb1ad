"""A sample workspace for `mlcbuild affected`, and random edits of it: one method a kind of edit.

The workspace has rules and stages of its own, commands, file groups, links, a matrix, settings by configuration, and,
if asked for, libraries of a tiny model with a pass of the workspace. Every edit leaves a workspace that builds.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.cli.kernel_workspace import COMPILE, LINES, LINK, RULES, SPLIT
from tests.compiler.tiny_llama import TINY_LLAMA

_OPERATIONS = ("matmul", "add", "rms_norm", "softmax", "reshape")
_FUNCTIONS = ("prefill", "decode", "verify")
_PASS = """\
import tvm

from mlcbuild.compiler.phases.pipeline import PhaseContext

LEFT_OUT = ("batch_verify",)


def run(module: tvm.IRModule, context: PhaseContext) -> tvm.IRModule:
    kept = {name: function for name, function in module.functions_items() if name.name_hint not in LEFT_OUT}
    return tvm.IRModule(kept, attrs=module.attrs)
"""
_JOIN = '#!/bin/sh\nout=$1\nshift\ncat "$@" > "$out"\n'

Line = tuple[str, str, str]  # operation, functions, body


@dataclass
class Sample:
    """The workspace as a value. `write` makes a folder equal to it."""

    chance: random.Random
    with_models: bool
    texts: dict[str, list[Line]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)  # all others that are written as they stand here
    links: dict[str, str] = field(default_factory=dict)
    executable: set[str] = field(default_factory=lambda: {"tools/join.sh"})
    kernels: dict[str, tuple[str, int]] = field(default_factory=dict)  # target → text, level
    levels: list[int] = field(default_factory=lambda: [1, 2])  # of the matrix
    commands: dict[str, tuple[str, list[str]]] = field(default_factory=dict)  # target → tool, inputs
    groups: dict[str, list[str]] = field(default_factory=dict)
    default_note: str = "plain"
    shell: str = "/bin/sh"
    shell_arguments: tuple[str, ...] = ("-e",)
    cpu: str = "x86-64-v3"
    quantizations: list[str] = field(default_factory=lambda: ["q4f32_1"])
    context: int = 64
    pass_after: str = "FuseTransposeMatmul"
    has_pass: bool = True
    config: dict[str, object] = field(default_factory=lambda: dict(TINY_LLAMA))
    helper: str = "lines"  # the module that the stage `split` imports
    comments: list[str] = field(default_factory=list)  # of BUILD.toml
    is_spaced: bool = False
    _numbers: int = 0

    def __post_init__(self) -> None:
        for name in ("one", "two", "three", "four"):
            self.texts[f"texts/{name}.txt"] = [self._line() for _ in range(3)]
        self.texts["real/far.txt"] = [self._line() for _ in range(2)]
        self.links["texts/far.txt"] = "../real/far.txt"
        self.kernels = {
            "alpha": ("texts/one.txt", 1),
            "beta": ("texts/two.txt", 2),
            "gamma": ("texts/far.txt", 1),
            "delta": ("texts/one.txt", 1),
        }
        self.commands = {
            "pair": ("join", [":alpha", ":beta"]),
            "all": ("join", [":pair", ":gamma"]),
            "shelled": ("shell", [":alpha"]),
        }
        self.groups = {"notes": ["texts/four.txt", ":beta"], "bundle": [":notes", ":all"]}
        stages = {"split": SPLIT, "lines": LINES, "compile_kernel": COMPILE, "link": LINK}
        self.files = {
            "pipeline/BUILD.toml": "",
            "pipeline/rules.py": RULES.replace('("lib.txt", link', '(f"{context.label.name}.txt", link'),
            **{f"pipeline/stages/{name}.py": text for name, text in stages.items()},
            "tools/join.sh": _JOIN,
            "passes/left_out.py": _PASS,
            "README.md": "A sample.\n",
            ".gitignore": "mlcbuild-out/\n.mlcbuild/\n__pycache__/\n",
        }

    # What is on the disk.

    def write(self, root: Path) -> None:
        wanted = {**self.files, "BUILD.toml": self._build_file()}
        wanted.update({path: "".join(f"{' '.join(line)}\n" for line in lines) for path, lines in self.texts.items()})
        if self.with_models:
            wanted["config.json"] = json.dumps(self.config, indent=2)
        for path, _, names in os.walk(root):
            if "/." in path or "mlcbuild-out" in path:
                continue
            for name in names:
                found = Path(path, name)
                if str(found.relative_to(root)) not in wanted or found.is_symlink():
                    found.unlink()
        for path, text in wanted.items():
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            if not file.exists() or file.read_text() != text:
                file.write_text(text)
            file.chmod(0o755 if path in self.executable else 0o644)
        for path, target in self.links.items():
            (root / path).symlink_to(target)

    def _build_file(self) -> str:
        lines = [*self.comments, "[workspace]", 'name = "sample"', 'rules = ["//pipeline:rules.py"]']
        if self.with_models:
            lines.append('default_platform = ":cpu"')
        lines += ["[configuration.default]", f'defaults = {{ note = "{self.default_note}" }}']
        lines += ["[[tool]]", 'name = "join"', 'executable = "tools/join.sh"']
        arguments = [*self.shell_arguments, "-c", 'cat "$@" > "$0"']
        lines += ["[[tool]]", 'name = "shell"', f'path = "{self.shell}"', f"arguments = {json.dumps(arguments)}"]
        for name, (text, level) in self.kernels.items():
            lines += ["[[kernels]]", f'name = "{name}"', f'text = "{text}"', f"level = {level}"]
        lines += ["[[kernels]]", 'name = "grid-{level}"', 'text = "texts/three.txt"']
        lines += [f"matrix = {{ level = {self.levels} }}"]
        for name, (tool, inputs) in self.commands.items():
            lines += ["[[command]]", f'name = "{name}"', f'tool = ":{tool}"', f"inputs = {json.dumps(inputs)}"]
            lines += [f'outputs = ["{name}.txt"]', 'arguments = ["{outputs}", "{inputs}"]']
        for name, sources in self.groups.items():
            lines += ["[[filegroup]]", f'name = "{name}"', f"srcs = {json.dumps(sources)}"]
        if self.with_models:
            lines += self._models()
        return "\n".join(f"\n{line}" if self.is_spaced and line.startswith("[") else line for line in lines) + "\n"

    def _models(self) -> list[str]:
        passes = 'passes = [":left-out"]' if self.has_pass else "passes = []"
        shape = f"overrides = {{ context_window_size = {self.context}, prefill_chunk_size = 16 }}"
        return [
            *("[[platform]]", 'name = "cpu"', 'kind = "cpu"', f'cpu = "{self.cpu}"'),
            *("[[compiler_pass]]", 'name = "left-out"', 'function = "passes.left_out:run"'),
            f'after = "{self.pass_after}"',
            *("[[model]]", 'name = "model"', 'config = "config.json"'),
            *("[[model_library]]", 'name = "plain-{quantization}"', 'model = ":model"', shape),
            f"matrix = {{ quantization = {json.dumps(self.quantizations)} }}",
            *("[[model_library]]", 'name = "with-pass"', 'model = ":model"', 'quantization = "q4f32_1"', passes, shape),
        ]

    # Parts of edits.

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _line(self) -> Line:
        functions = self.chance.sample(_FUNCTIONS, self.chance.randint(1, 2))
        return self.chance.choice(_OPERATIONS), ",".join(functions), f"body {self._number()}"

    def _text(self) -> str:
        return self.chance.choice(sorted(self.texts))

    def _replace(self, path: str, old: str, new: str) -> None:
        assert old in self.files[path], (path, old)
        self.files[path] = self.files[path].replace(old, new, 1)

    def _users(self, label: str) -> list[list[str]]:
        """The lists of labels that name a target or file."""
        lists = [inputs for _, inputs in self.commands.values()] + list(self.groups.values())
        return [each for each in lists if label in each]

    # Edits of files.

    def text_body(self) -> None:
        lines = self.texts[self._text()]
        place = self.chance.randrange(len(lines))
        lines[place] = (*lines[place][:2], f"body {self._number()}")

    def text_use(self) -> None:
        lines = self.texts[self._text()]
        place = self.chance.randrange(len(lines))
        operation, functions, body = lines[place]
        lines[place] = operation, "verify" if functions != "verify" else "decode", body

    def text_line_added(self) -> None:
        self.texts[self._text()].append(self._line())

    def text_order(self) -> None:
        self.texts[self._text()].reverse()

    def text_renamed(self) -> None:
        path = self.chance.choice(sorted({text for text, _ in self.kernels.values()} & self.texts.keys()))
        new = f"texts/renamed-{self._number()}.txt"
        self.texts[new] = self.texts.pop(path)
        self.kernels = {name: (new if text == path else text, level) for name, (text, level) in self.kernels.items()}

    def unrelated_file(self) -> None:
        self.files[f"notes/{self._number()}.txt"] = "unrelated\n"

    def unrelated_file_changed(self) -> None:
        self.files["README.md"] += f"line {self._number()}\n"

    def file_mode(self) -> None:
        self.executable ^= {self._text()}

    def link_instead_of_a_file(self) -> None:
        path = self.chance.choice(sorted({text for text, _ in self.kernels.values()} & self.texts.keys()))
        hidden = f"real/{self._number()}.txt"
        self.texts[hidden] = self.texts.pop(path)
        self.links[path] = f"../{hidden}"

    def link_elsewhere(self) -> None:
        path = self.chance.choice(sorted(self.links))
        new = f"real/{self._number()}.txt"
        self.texts[new] = [self._line() for _ in range(2)]
        self.links[path] = f"../{new}"

    def file_behind_a_link(self) -> None:
        target = self.links[self.chance.choice(sorted(self.links))]
        self.texts[target.removeprefix("../")].append(self._line())

    # Edits of BUILD.toml.

    def parameter(self) -> None:
        name = self.chance.choice(sorted(self.kernels))
        text, level = self.kernels[name]
        self.kernels[name] = text, level + 1

    def default_of_the_configuration(self) -> None:
        self.default_note = f"note {self._number()}"

    def axis_value_added(self) -> None:
        self.levels.append(max(self.levels) + 1)

    def axis_value_removed(self) -> None:
        if len(self.levels) > 1:
            self.levels.pop(self.chance.randrange(len(self.levels)))
        else:
            self.axis_value_added()

    def dependency_added(self) -> None:
        name = self.chance.choice(("pair", "shelled"))
        _, inputs = self.commands[name]
        new = [f":{each}" for each in sorted(self.kernels) if f":{each}" not in inputs]
        inputs.append(self.chance.choice(new) if new else "README.md")

    def dependency_removed(self) -> None:
        lists = [inputs for _, inputs in self.commands.values() if len(inputs) > 1] or [self.groups["bundle"]]
        chosen = self.chance.choice(lists)
        chosen.pop(self.chance.randrange(len(chosen)))

    def target_added(self) -> None:
        self.kernels[f"new-{self._number()}"] = self.chance.choice(sorted(text for text, _ in self.kernels.values())), 1

    def target_renamed(self) -> None:
        name = self.chance.choice(sorted(self.kernels))
        new = f"renamed-{self._number()}"
        self.kernels[new] = self.kernels.pop(name)
        for labels in self._users(f":{name}"):
            labels[labels.index(f":{name}")] = f":{new}"

    def target_removed(self) -> None:
        name = self.chance.choice(sorted(self.kernels))
        if len(self.kernels) > 2:
            del self.kernels[name]
        for labels in self._users(f":{name}"):
            labels.remove(f":{name}")
            if not labels:
                labels.append("README.md")

    def comment_of_targets(self) -> None:
        self.comments.append(f"# comment {self._number()}")

    def format_of_targets(self) -> None:
        self.is_spaced = not self.is_spaced

    def order_of_targets(self) -> None:
        self.kernels = dict(reversed(self.kernels.items()))

    def toolchain_program(self) -> None:
        self.shell = "/bin/bash" if self.shell == "/bin/sh" else "/bin/sh"

    def toolchain_arguments(self) -> None:
        self.shell_arguments = ("-e", "-u") if self.shell_arguments == ("-e",) else ("-e",)

    def toolchain_file(self) -> None:
        self._replace("tools/join.sh", "cat ", f"cat -u {' ' * self._number()}")

    def toolchain_comment(self) -> None:
        self.files["tools/join.sh"] += f"# comment {self._number()}\n"

    # Edits of code.

    def stage_code(self) -> None:
        self._replace("pipeline/stages/link.py", '"".join', f'" {self._number()}".join')

    def stage_code_of_kernels(self) -> None:
        self._replace("pipeline/stages/compile_kernel.py", "return text", f'return "{self._number()}" + text')

    def stage_code_without_effect(self) -> None:
        self._replace(f"pipeline/stages/{self.helper}.py", 'split(" "', f'removesuffix("#{self._number()}").split(" "')

    def stage_comment(self) -> None:
        stage = self.chance.choice(("split", self.helper, "compile_kernel", "link"))
        self.files[f"pipeline/stages/{stage}.py"] += f"# comment {self._number()}\n"

    def stage_format(self) -> None:
        self._replace(f"pipeline/stages/{self.helper}.py", "def unused", "\n\n\ndef unused")

    def helper_added(self) -> None:
        self.files[f"pipeline/stages/{self.helper}.py"] += f"\n\ndef helper_{self._number()}():\n    return 1\n"

    def module_renamed(self) -> None:
        new = "rows" if self.helper == "lines" else "lines"
        self.files[f"pipeline/stages/{new}.py"] = self.files.pop(f"pipeline/stages/{self.helper}.py")
        self._replace("pipeline/stages/split.py", f"stages.{self.helper} import", f"stages.{new} import")
        self.helper = new

    def rule_code(self) -> None:
        self._replace("pipeline/rules.py", 'target.string("note")', f'target.string("note") + "{self._number()}"')

    def rule_comment(self) -> None:
        self.files["pipeline/rules.py"] += f"# comment {self._number()}\n"

    # Edits of models.

    def config_value(self) -> None:
        self.config["rms_norm_eps"] = 1e-5 / (1 + self._number())

    def config_value_that_nobody_reads(self) -> None:
        self.config["transformers_version"] = f"5.{self._number()}"

    def platform(self) -> None:
        self.cpu = "x86-64-v2" if self.cpu == "x86-64-v3" else "x86-64-v3"

    def quantization(self) -> None:
        self.quantizations = ["q0f32"] if self.quantizations == ["q4f32_1"] else ["q4f32_1"]

    def override(self) -> None:
        self.context *= 2

    def pass_code(self) -> None:
        self._replace("passes/left_out.py", "LEFT_OUT = (", f'LEFT_OUT = ("none_{self._number()}", ')

    def pass_comment(self) -> None:
        self.files["passes/left_out.py"] += f"# comment {self._number()}\n"

    def place_of_the_pass(self) -> None:
        self.pass_after = "FuseAddRMSNorm" if self.pass_after == "FuseTransposeMatmul" else "FuseTransposeMatmul"

    def pass_removed_or_added(self) -> None:
        self.has_pass = not self.has_pass


Edit = Callable[[Sample], None]
EDITS: tuple[Edit, ...] = (
    Sample.text_body,
    Sample.text_use,
    Sample.text_line_added,
    Sample.text_order,
    Sample.text_renamed,
    Sample.unrelated_file,
    Sample.unrelated_file_changed,
    Sample.file_mode,
    Sample.link_instead_of_a_file,
    Sample.link_elsewhere,
    Sample.file_behind_a_link,
    Sample.parameter,
    Sample.default_of_the_configuration,
    Sample.axis_value_added,
    Sample.axis_value_removed,
    Sample.dependency_added,
    Sample.dependency_removed,
    Sample.target_added,
    Sample.target_renamed,
    Sample.target_removed,
    Sample.comment_of_targets,
    Sample.format_of_targets,
    Sample.order_of_targets,
    Sample.toolchain_program,
    Sample.toolchain_arguments,
    Sample.toolchain_file,
    Sample.toolchain_comment,
    Sample.stage_code,
    Sample.stage_code_of_kernels,
    Sample.stage_code_without_effect,
    Sample.stage_comment,
    Sample.stage_format,
    Sample.helper_added,
    Sample.module_renamed,
    Sample.rule_code,
    Sample.rule_comment,
)
EDITS_OF_MODELS: tuple[Edit, ...] = (
    Sample.config_value,
    Sample.config_value_that_nobody_reads,
    Sample.platform,
    Sample.quantization,
    Sample.override,
    Sample.pass_code,
    Sample.pass_comment,
    Sample.place_of_the_pass,
    Sample.pass_removed_or_added,
)
