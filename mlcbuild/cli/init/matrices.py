"""From the jobs of a specification file to tables: a matrix for all cells that differ in nothing else."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mlcbuild.cli.init.build_file import Table, Value, target_name
from mlcbuild.cli.init.json_places import Keys
from mlcbuild.cli.init.mlc_specs import CompileOption, Job, Spec, Wanted
from mlcbuild.compiler.models.sizes import OVERRIDE_RANGES
from mlcbuild.errors import StageError
from mlcbuild.rules import schemes
from mlcbuild.rules.backend import backends
from mlcbuild.rules.proposals import CONFIG, model_in_hand
from mlcbuild.suggestions import known_values
from mlcbuild.workspace.label import Label, LabelError

_NAME = "{model}-{quantization}-{platform}"
_HUGGING_FACE = ("HF://", "https://huggingface.co/")
_CONVERTED = re.compile(r"-(?P<quantization>q\d\w*)-MLC$")
_FILES = ("*.json", "*.safetensors")
# Values of overrides that say nothing: MLC-LLM's defaults.
_DEFAULTS = {"pipeline_parallel_stages": 1, "tensor_parallel_shards": 1, "disaggregation": False}


@dataclass(frozen=True, kw_only=True)
class NotMapped:
    """A value of the file that the tables do not have, and why."""

    keys: Keys
    message: str
    advice: str = ""


@dataclass(frozen=True, kw_only=True)
class _Cells:
    """The part of a matrix that models share. With a `problem` no target can be built yet."""

    rule: str
    quantizations: tuple[str, ...]
    platforms: tuple[str, ...]
    overrides: tuple[tuple[str, int], ...]
    problem: str


@dataclass(kw_only=True)
class Matrices:
    """Tables for a spec. `root` is the folder of the BUILD.toml; paths of models are relative to `start`."""

    root: Path
    start: Path
    not_mapped: dict[NotMapped, None] = field(default_factory=dict)
    target_count: int = 0
    fetches: bool = False

    def tables(self, spec: Spec) -> Iterator[Table]:
        """Models first, each once, then a table for each set of cells."""
        for keys, reason in spec.ignored:
            self._report(keys, f'"{keys[-1]}" has no counterpart: {reason}')
        models: dict[str, str] = {}  # name → its problem
        cells: dict[_Cells, dict[str, None]] = {}
        seen: dict[str, Wanted] = {}
        for job in spec.jobs:
            name = self._name(job)
            if name not in models:
                seen[name] = job.model
                tables, models[name] = self._model(name, job.model)
                yield from tables
            elif seen[name].value != job.model.value:
                self._report(job.model.keys, f'"{job.model_id}" is another model already: "{seen[name].value}"')
                continue
            for found in self._cells(job, models[name]):
                cells.setdefault(found, {})[name] = None
        used: set[str] = set()
        for found, names in cells.items():
            yield self._table(found, tuple(names), used)

    def _table(self, cells: _Cells, names: tuple[str, ...], used: set[str]) -> Table:
        made = {
            f"{name}-{quantization}-{platform.rpartition(':')[2]}"
            for name, quantization, platform in itertools.product(names, cells.quantizations, cells.platforms)
        }
        suffix, number = "", 1
        while not used.isdisjoint(f"{name}{suffix}" for name in made):
            number += 1
            suffix = f"-{number}"
        used.update(f"{name}{suffix}" for name in made)
        if not cells.problem:
            self.target_count += len(made)
        values: dict[str, Value] = {
            "name": f"{_NAME}{suffix}",
            "matrix": {
                "model": [f":{name}" for name in names],
                "quantization": cells.quantizations,
                "platform": cells.platforms,
            },
        }
        if cells.overrides:
            values["overrides"] = dict(cells.overrides)
        return Table(rule=cells.rule, values=values, comment=cells.problem, is_example=bool(cells.problem))

    # Models.

    def _name(self, job: Job) -> str:
        """The target's name. It is never that of the model's folder: a target would count more than the folder."""
        name = target_name(job.model_id)
        return f"{name}-model" if self._inside(job.model) == name else name

    def _inside(self, model: Wanted) -> str:
        """The path of a local model from the root; "" for one elsewhere."""
        path = Path(os.path.normpath(self.start / model.value))
        return path.relative_to(self.root).as_posix() if self.root in path.parents else ""

    def _model(self, name: str, model: Wanted) -> tuple[list[Table], str]:
        """The tables of a model, and why it cannot be built yet, "" if it can."""
        prefix = next((each for each in _HUGGING_FACE if model.value.startswith(each)), "")
        if not prefix:
            return self._local_model(name, model)
        repository = model.value.removeprefix(prefix).strip("/")
        problem = ""
        if _CONVERTED.search(repository):
            problem = f"{repository} has weights that MLC-LLM has converted: name the repository that they come from."
            self._report(model.keys, f'"{model.value}" holds converted weights; name the model that they come from')
        self.fetches = self.fetches or not problem
        fetched = Table(
            rule="hf_repository",
            values={"name": f"{name}-files", "repository": repository, "files": _FILES},
            comment=problem,
            is_example=bool(problem),
        )
        own = Table(rule="model", values={"name": name, "source": f":{name}-files"}, is_example=bool(problem))
        return [fetched, own], problem

    def _local_model(self, name: str, model: Wanted) -> tuple[list[Table], str]:
        path = Path(os.path.normpath(self.start / model.value))
        inside = self._inside(model)
        attribute, problem = "source", ""
        try:
            if not inside:
                raise StageError(f"{path} is not below the folder of the BUILD.toml")
            Label("", inside)
            if not model_in_hand(path).has_weights:
                attribute, inside = "config", f"{inside}/{CONFIG}"
        except LabelError as error:
            problem = error.message
        except StageError as error:
            problem = error.message.replace(str(path), model.value)
        except OSError as error:
            problem = f"{model.value} cannot be read: {error.strerror or error}"
        if problem:
            self._report(model.keys, f'the model "{model.value}" cannot be built: {problem}')
        values = {"name": name, attribute: inside or model.value}
        return [Table(rule="model", values=values, comment=problem, is_example=bool(problem))], problem

    # Cells.

    def _cells(self, job: Job, problem: str) -> Iterator[_Cells]:
        found: dict[tuple[tuple[str, int], ...], tuple[dict[str, None], dict[str, None]]] = {}
        every = self._quantizations(job)
        has_platform = False
        for option in job.options:
            platforms = self._platforms(option)
            has_platform = has_platform or bool(platforms)
            quantizations = [name for name in every if name == (option.quantization or name)]
            if not quantizations:
                continue
            names, labels = found.setdefault(self._overrides(option), ({}, {}))
            names.update(dict.fromkeys(quantizations))
            labels.update(dict.fromkeys(platforms))
        for overrides, (names, labels) in found.items():
            if not labels and has_platform:
                continue
            wrong = problem or ("" if labels else "Its devices have no platform here. These are those that there are.")
            yield _Cells(
                rule=job.rule,
                quantizations=tuple(names),
                platforms=tuple(labels or _common_platforms()),
                overrides=overrides,
                problem=wrong,
            )

    def _quantizations(self, job: Job) -> list[str]:
        wanted = job.quantizations
        if not wanted:
            named = _CONVERTED.search(job.model.value)
            if named is None:
                kinds = [_kind(option.device) for option in job.options if option.device is not None]
                kind = next((kind for kind in kinds if kind in backends()), next(iter(backends())))
                proposed = backends()[kind].proposed_quantizations[0]
                self._report(job.model.keys, f'"{job.model.value}" names no quantization; {proposed} is written')
                return [proposed]
            wanted = (Wanted(value=named["quantization"], keys=job.model.keys),)
        known = []
        for each in wanted:
            if each.value in schemes.NAMES:
                known.append(each.value)
            else:
                hint = known_values(each.value, schemes.NAMES)
                self._report(each.keys, f'the quantization "{each.value}" is not supported', hint)
        return list(dict.fromkeys(known))

    def _platforms(self, option: CompileOption) -> list[str]:
        """The platforms of a device; of no device, all common ones."""
        if option.device is None:
            return _common_platforms()
        kind = _kind(option.device)
        if kind in backends() and kind in backends()[kind].platforms:
            return [_label(kind)]
        hint = known_values(kind, backends())
        self._report(option.device.keys, f'there is no platform for the device "{option.device.value}"', hint)
        return []

    def _overrides(self, option: CompileOption) -> tuple[tuple[str, int], ...]:
        found = {}
        for name, value in option.overrides.items():
            keys = (*option.keys, name)
            if value is None or (name in _DEFAULTS and _DEFAULTS[name] == value):
                continue
            low, high = OVERRIDE_RANGES.get(name, (0, -1))
            if name not in OVERRIDE_RANGES:
                self._report(keys, f'the override "{name}" is not supported', known_values(name, OVERRIDE_RANGES))
            elif type(value) is not int or not low <= value <= high:
                wanted = f"from {low} to {high}" if low < high else str(low)
                self._report(keys, f'the override "{name}" must be {wanted}, not {value}')
            else:
                found[name] = value
        return tuple(sorted(found.items()))

    def _report(self, keys: Keys, message: str, advice: str = "") -> None:
        self.not_mapped[NotMapped(keys=keys, message=message, advice=advice)] = None


def _kind(device: Wanted) -> str:
    """The kind of a device: `cuda:0` is one of several."""
    return device.value.partition(":")[0]


def _common_platforms() -> list[str]:
    return [_label(kind) for kind, backend in backends().items() if kind in backend.platforms]


def _label(kind: str) -> str:
    return f"@platforms//:{kind}"


def by_message(found: Iterable[NotMapped]) -> Mapping[tuple[str, str], list[Keys]]:
    """The places of each message and its advice, in the order in which they were found."""
    places: dict[tuple[str, str], list[Keys]] = {}
    for each in found:
        places.setdefault((each.message, each.advice), []).append(each.keys)
    return places
