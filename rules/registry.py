"""The rules a workspace has: the built-in ones and those of its own rule files, loaded through one door."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from mlcbuild.errors import Location, WorkspaceError, WorkspaceErrors
from mlcbuild.rules.rule import Rule
from mlcbuild.rules.rule_file_mistakes import advice_on
from mlcbuild.workspace.schema import RuleSchema

if TYPE_CHECKING:
    from mlcbuild.workspace.loader import RuleFile

# Each is a module of its name, with one rule.
BUILT_IN = (
    "answer_test",
    "calibration_statistics",
    "calibration_text",
    "command",
    "compile_comparison",
    "compiler_pass",
    "compressed_tensors_package",
    "executorch_program",
    "exported_layer",
    "filegroup",
    "gguf_package",
    "hf_repository",
    "http_file",
    "iree_module",
    "local_file",
    "logits_test",
    "max_model",
    "model",
    "model_library",
    "model_package",
    "mojo_binary",
    "onnx_library",
    "onnx_model",
    "openvino_model",
    "ort_model",
    "perplexity_test",
    "platform",
    "pypi_file",
    "python_environment",
    "quantized_weights",
    "relax_module",
    "relax_tuning",
    "s3_file",
    "speed_test",
    "stablehlo_module",
    "tensorrt_engine",
    "tool",
    "torch_aoti_library",
    "torch_exported_program",
    "torch_model",
    "triton_kernel",
    "xla_executable",
)


_RULE_FILES = "mlcbuild_workspace_rules."  # before the names of their modules


class Rules(Mapping[str, Rule]):
    """Every rule by name: the built-in ones, and others. A built-in rule is imported when it is first asked for: all of
    them take longer to import than a workspace of a hundred targets takes to load, and most workspaces use a few."""

    def __init__(self, others: Mapping[str, Rule]) -> None:
        self._found = dict(others)
        self._names = tuple(dict.fromkeys((*BUILT_IN, *others)))

    def __getitem__(self, name: str) -> Rule:
        found = self._found.get(name)
        if found is None:
            if name not in BUILT_IN:
                raise KeyError(name)
            (found,) = rules_in(importlib.import_module(f"mlcbuild.rules.{name}"))
            self._found[name] = found
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class Schemas(Mapping[str, RuleSchema]):
    """The schemas of rules by name."""

    def __init__(self, rules: Mapping[str, Rule]) -> None:
        self._rules = rules

    def __getitem__(self, name: str) -> RuleSchema:
        return self._rules[name].schema

    def __contains__(self, name: object) -> bool:
        return name in self._rules

    def __iter__(self) -> Iterator[str]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)


def load_rules(root: Path, files: Iterable[RuleFile]) -> Rules:
    """Every rule by name. Raises WorkspaceErrors for files that do not load, define no rule, or define one twice."""
    rules: dict[str, Rule] = {}
    errors: list[WorkspaceError] = []
    for file in files:
        try:
            found = rules_in(_load_file(root / file.path, file.path, file.location))
            if not found:
                raise WorkspaceError(
                    f"rule file {file.path} defines no rule",
                    location=file.location,
                    advice=("a rule is a `mlcbuild.rules.rule.Rule` at the file's top level",),
                )
            for rule in found:
                if rule.schema.name in rules or rule.schema.name in BUILT_IN:
                    raise WorkspaceError(
                        f'rule file {file.path} defines "{rule.schema.name}", which is a rule already',
                        location=file.location,
                        advice=("give it another name",),
                    )
                rules[rule.schema.name] = rule
        except WorkspaceError as error:
            errors.append(error)
    if errors:
        raise WorkspaceErrors(tuple(errors))
    return Rules(rules)


def rules_in(module: ModuleType) -> tuple[Rule, ...]:
    """The rules that a module defines at its top level, in order."""
    return tuple(value for value in vars(module).values() if isinstance(value, Rule))


def place_in_rule_file(error: Exception, root: Path) -> Location | None:
    """The last line of a rule file of the workspace that an exception came by, if it came by any."""
    place = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").startswith(_RULE_FILES):
            path = Path(trace.tb_frame.f_code.co_filename)
            place = Location(path=path.relative_to(root).as_posix(), line=trace.tb_lineno)
        trace = trace.tb_next
    return place


def _load_file(path: Path, shown: str, location: Location) -> ModuleType:
    name = _RULE_FILES + shown.removesuffix(".py").replace("/", ".")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or not isinstance(spec.loader, SourceFileLoader):
        raise WorkspaceError(f"rule file {shown} is not a Python file", location=location)
    module = importlib.util.module_from_spec(spec)
    try:
        # From its source: bytecode beside it may be of another text of that size, written in the same second.
        exec(spec.loader.source_to_code(spec.loader.get_data(str(path)), path), vars(module))
    except FileNotFoundError:
        raise WorkspaceError(f"there is no rule file {shown}", location=location) from None
    except SyntaxError as error:
        raise WorkspaceError(
            f"rule file {shown} is not valid Python: {error.msg}",
            location=Location(path=shown, line=max(error.lineno or 0, 0), column=max(error.offset or 0, 0)),
        ) from None
    except Exception as error:
        raise WorkspaceError(
            f"rule file {shown} failed as it was loaded: {type(error).__name__}: {error}",
            location=_last_line_in(path, shown, error),
            advice=advice_on(error),
        ) from error
    return module


def _last_line_in(path: Path, shown: str, error: Exception) -> Location:
    line = 0
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return Location(path=shown, line=line)
