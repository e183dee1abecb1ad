"""Random workspaces of `command` targets, and what a build of them must come to: a plain model that keeps no state
but what was ever made.

Every command runs one small shell program over its inputs. `run_program` says in Python what the program does, so
that a build's bytes are known without building, and an executor can run thousands of them in this process.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

Files = Mapping[str, tuple[bytes, bool]]  # path → content and executable bit

PACKAGES = ("", "a", "b", "b/c")
FAIL = "fail"
FAILURE_CODE = 3

# Output names that end in "/" are directories, in which the number of files depends on the content. A width of 1
# leaves sixteen different contents, of 0 one: most edits stop there.
_PROGRAM = """\
#!/bin/sh
# {comment}
set -e
width=$1 word=$2
shift 2
outputs=
while [ "$1" != -- ]; do outputs="$outputs $1"; shift; done
shift
if [ "$word" = fail ]; then echo "$0 fails on request"; exit 3; fi
for output in $outputs; do
  sum=$( (
    echo "{version} $word $VARIABLE $output"
    for input; do
      case $input in */) files=$(ls -d $input*) ;; *) files=$input ;; esac
      for file in $files; do
        bit=-; if [ -x $file ]; then bit=x; fi
        echo "$bit $file"
        cat $file
      done
    done
  ) | sha256sum )
  if [ $width = 0 ]; then text=same; else text=$(echo $sum | cut -c1-$width); fi
  case $output in
    */) echo $text > ${{output}}first; case $sum in [0-7]*) echo $text > ${{output}}second ;; esac ;;
    *) echo $text > $output; case $sum in [0-3]*) chmod +x $output ;; esac ;;
  esac
done
"""


def program(version: int, comment: int) -> bytes:
    return _PROGRAM.format(version=version, comment=comment).encode()


def run_program(
    content: bytes, arguments: Sequence[str], variable: str, inputs: Files
) -> dict[str, tuple[bytes, bool]] | None:
    """What `program` makes of its arguments and inputs; None where it fails."""
    version = content.decode().partition(" $word $VARIABLE")[0].rpartition('"')[2]
    width, word, *rest = arguments
    cut = rest.index("--")
    outputs, given = rest[:cut], rest[cut + 1 :]
    if word == FAIL:
        return None
    made: dict[str, tuple[bytes, bool]] = {}
    for output in outputs:
        hasher = hashlib.sha256(f"{version} {word} {variable} {output}\n".encode())
        for path in given:
            files = sorted(name for name in inputs if name.startswith(path)) if path.endswith("/") else [path]
            for file in files:
                data, executable = inputs[file]
                hasher.update(f"{'x' if executable else '-'} {file}\n".encode() + data)
        digest = hasher.hexdigest()
        text = (digest[: int(width)] if width != "0" else "same").encode() + b"\n"
        if output.endswith("/"):
            made[f"{output}first"] = (text, False)
            if digest[0] in "01234567":
                made[f"{output}second"] = (text, False)
        else:
            made[output] = (text, digest[0] in "0123")
    return made


@dataclass(frozen=True, kw_only=True)
class Command:
    """One `command` table. `needs` are labels; a `matrix` of words makes it two targets."""

    package: str
    name: str
    width: int
    word: str
    variable: str
    tool: int
    needs: tuple[str, ...]
    outputs: tuple[str, ...]
    matrix: tuple[str, ...] = ()

    @property
    def cells(self) -> tuple[Command, ...]:
        """The targets that it stands for."""
        if not self.matrix:
            return (self,)
        return tuple(replace(self, name=self.name.format(cell=cell), word=cell, matrix=()) for cell in self.matrix)

    @property
    def label(self) -> str:
        return f"//{self.package}:{self.name}"

    def table(self) -> str:
        lines = [
            "[[command]]",
            f"name = {json.dumps(self.name)}",
            f'tool = "//tools:t{self.tool}"',
            f"inputs = {json.dumps(list(self.needs))}",
            f"outputs = {json.dumps(list(self.outputs))}",
            f"environment = {{ VARIABLE = {json.dumps(self.variable)} }}",
        ]
        arguments = [str(self.width), "{cell}" if self.matrix else self.word, "{outputs}", "--", "{inputs}"]
        lines.append(f"arguments = {json.dumps(arguments)}")
        if self.matrix:
            lines.append(f"matrix = {{ cell = {json.dumps(list(self.matrix))} }}")
        return "\n".join(lines) + "\n"


Key = tuple[object, ...]


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What a build of some targets must come to."""

    keys: Mapping[str, Key]  # of the actions that have one, by label
    outputs: Mapping[str, Files]  # of the targets that can be built, by label, below the target's own folder
    failed: frozenset[str]
    skipped: frozenset[str]


@dataclass
class Synthetic:
    """Sources, tools and commands; edits change these values, and `write` brings them to disk."""

    chance: random.Random
    sources: dict[str, tuple[str, bool]] = field(default_factory=dict)  # workspace path → text, executable bit
    tools: list[tuple[int, int]] = field(default_factory=list)  # version and comment of each
    commands: list[Command] = field(default_factory=list)

    @classmethod
    def random(cls, chance: random.Random, size: int) -> Synthetic:
        """`size` targets (a matrix counts as its cells) that need sources and earlier targets."""
        world = cls(chance=chance, tools=[(1, 0), (1, 0), (2, 0)])
        for package in PACKAGES:
            for index in range(max(2, size // 40)):
                world.sources[f"{package}/s{index}.txt".lstrip("/")] = (str(chance.randrange(5)), False)
        count = 0
        while count < size:
            command = world._command(count)
            world.commands.append(command)
            count += len(command.cells)
            if not command.matrix and count < size and chance.random() < 0.05:
                # A target of another name and the same work: it has the same key, and nothing needs it.
                world.commands.append(replace(command, name=f"{command.name}.twin"))
                count += 1
        return world

    def _command(self, number: int) -> Command:
        chance = self.chance
        package = chance.choice(PACKAGES)
        is_matrix = chance.random() < 0.1
        name = f"t{number}-{{cell}}" if is_matrix else f"t{number}"
        outputs = [f"o{number}-{{cell}}" if is_matrix else f"o{number}"]
        if not is_matrix and chance.random() < 0.2:
            outputs = [f"d{number}/"]
        elif not is_matrix and chance.random() < 0.15:
            outputs.append(f"e/o{number}")
        return Command(
            package=package,
            name=name,
            width=chance.choice([0, 1, 1, 8, 8, 8]),
            word=chance.choice(["x", "y"]),
            variable=chance.choice(["", "v"]),
            tool=chance.randrange(len(self.tools)),
            needs=self.some_needs(package, self.targets()[-40:]),
            outputs=tuple(outputs),
            matrix=("m", "n") if is_matrix else (),
        )

    def some_needs(self, package: str, candidates: Sequence[Command]) -> tuple[str, ...]:
        chance = self.chance
        files = [self._source_label(path) for path in self.sources if path.rpartition("/")[0] == package]
        labels = [target.label for target in candidates if not target.name.endswith(".twin")]
        wanted = chance.sample(files, k=min(len(files), chance.randrange(0, 3)))
        wanted += chance.sample(labels, k=min(len(labels), chance.randrange(0, 4)))
        return tuple(wanted)

    @staticmethod
    def _source_label(path: str) -> str:
        return f"//{path.rpartition('/')[0]}:{path.rpartition('/')[2]}"

    def targets(self) -> list[Command]:
        return [
            replace(cell, outputs=tuple(name.replace("{cell}", cell.word) for name in cell.outputs))
            for command in self.commands
            for cell in command.cells
        ]

    def write(self, root: Path) -> None:
        """Bring it to disk; files that hold the right bytes already are not touched."""
        tables: dict[str, list[str]] = {package: [] for package in PACKAGES}
        for command in self.commands:
            tables[command.package].append(command.table())
        files = {f"{package}/BUILD.toml".lstrip("/"): "\n".join(found) for package, found in tables.items()}
        files["BUILD.toml"] = '[workspace]\nname = "synthetic"\n\n' + files["BUILD.toml"]
        files["tools/BUILD.toml"] = "".join(
            f'[[tool]]\nname = "t{index}"\nexecutable = "t{index}.sh"\n\n' for index in range(len(self.tools))
        )
        for path, text in files.items():
            _write(root / path, text.encode(), False)
        for index, (version, comment) in enumerate(self.tools):
            _write(root / f"tools/t{index}.sh", program(version, comment), True)
        for path, (text, executable) in self.sources.items():
            _write(root / path, text.encode(), executable)

    # Edits: each changes one thing, and says in which words.

    def edit(self) -> str:
        edits: list[Callable[[], str]] = [
            self._edit_source,
            self._edit_source,
            self._edit_source,
            self._edit_bit,
            self._edit_tool,
            self._edit_comment,
            self._edit_word,
            self._edit_width,
            self._edit_variable,
            self._edit_needs,
        ]
        return self.chance.choice(edits)()

    def _edit_source(self) -> str:
        path = self.chance.choice(sorted(self.sources))
        text = str(self.chance.randrange(5))
        self.sources[path] = (text, self.sources[path][1])
        return f"source {path} = {text}"

    def _edit_bit(self) -> str:
        path = self.chance.choice(sorted(self.sources))
        self.sources[path] = (self.sources[path][0], not self.sources[path][1])
        return f"executable bit of {path}"

    def _edit_tool(self) -> str:
        index = self.chance.randrange(len(self.tools))
        self.tools[index] = (self.chance.randrange(3), self.tools[index][1])
        return f"version of tool {index}"

    def _edit_comment(self) -> str:
        index = self.chance.randrange(len(self.tools))
        self.tools[index] = (self.tools[index][0], self.chance.randrange(3))
        return f"comment in tool {index}"

    def _edit_word(self) -> str:
        return self._change_command(lambda command: replace(command, word=self.chance.choice(["x", "y", "z"])))

    def _edit_width(self) -> str:
        return self._change_command(lambda command: replace(command, width=self.chance.choice([0, 1, 8])))

    def _edit_variable(self) -> str:
        return self._change_command(lambda command: replace(command, variable=self.chance.choice(["", "v", "w"])))

    def _edit_needs(self) -> str:
        def change(command: Command) -> Command:
            index = self.commands.index(command)
            earlier = [replace(cell, outputs=()) for candidate in self.commands[:index] for cell in candidate.cells]
            return replace(command, needs=self.some_needs(command.package, earlier[-40:]))

        return self._change_command(change)

    def _change_command(self, change: Callable[[Command], Command]) -> str:
        index = self.chance.randrange(len(self.commands))
        self.commands[index] = change(self.commands[index])
        return f"{self.commands[index]}"

    def toggle_failure(self) -> None:
        self._change_command(
            lambda command: command if command.matrix else replace(command, word="x" if command.word == FAIL else FAIL)
        )

    def mend(self) -> None:
        """No command fails any more."""
        self.commands = [replace(command, word="x") if command.word == FAIL else command for command in self.commands]

    # The model.

    def closure(self, wanted: Sequence[str]) -> list[Command]:
        """The targets that these labels need, dependencies first."""
        targets = {target.label: target for target in self.targets()}
        needed, waiting = set[str](), list(wanted)
        while waiting:
            label = waiting.pop()
            if label not in needed and label in targets:
                needed.add(label)
                waiting += targets[label].needs
        return [target for target in targets.values() if target.label in needed]

    def expect(self, wanted: Sequence[str]) -> Expectation:
        keys: dict[str, Key] = {}
        outputs: dict[str, dict[str, tuple[bytes, bool]]] = {}
        failed, skipped = set[str](), set[str]()
        targets = self.closure(wanted)
        known = {target.label for target in targets}
        for target in targets:
            if any(need in known and need not in outputs for need in target.needs):
                skipped.add(target.label)
                continue
            inputs: dict[str, tuple[bytes, bool]] = {}
            given: list[str] = []
            for need in target.needs:
                package = need.removeprefix("//").partition(":")[0]
                folder = f"in/{package}/" if package else "in/"
                if need in outputs:
                    inputs |= {folder + path: content for path, content in outputs[need].items()}
                    declared = next(other.outputs for other in targets if other.label == need)
                    given += [folder + path for path in declared]
                else:
                    name = need.partition(":")[2]
                    text, executable = self.sources[f"{package}/{name}".lstrip("/")]
                    inputs[folder + name] = (text.encode(), executable)
                    given.append(folder + name)
            content = program(*self.tools[target.tool])
            arguments = [
                str(target.width),
                target.word,
                *(f"out/{name}" for name in target.outputs),
                "--",
                *sorted(given),
            ]
            keys[target.label] = (
                # A tool lies under its own name, which an argument tells.
                target.tool,
                content,
                tuple(arguments),
                target.variable,
                tuple(sorted(inputs.items())),
            )
            made = run_program(content, arguments, target.variable, inputs)
            if made is None:
                failed.add(target.label)
            else:
                outputs[target.label] = {path.removeprefix("out/"): value for path, value in made.items()}
        return Expectation(keys=keys, outputs=outputs, failed=frozenset(failed), skipped=frozenset(skipped))


def _write(path: Path, content: bytes, executable: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_bytes() != content:
        path.write_bytes(content)
    mode = 0o755 if executable else 0o644
    if path.stat().st_mode & 0o777 != mode:
        path.chmod(mode)
