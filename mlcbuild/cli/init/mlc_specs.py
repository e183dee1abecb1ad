"""MLC-LLM's specification files: what each asks for, in one form.

- `mlc-package-config.json` of `mlc_llm package`: `device` and a `model_list`.
- The spec of `mlc_llm.cli.lib_delivery`: `tasks`, each for every one of the compile options and quantizations.
- The spec of `mlc_llm.cli.delivery`: `tasks`, each for every one of the quantizations; it names no device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mlcbuild.cli.init.json_places import JsonFile, Keys
from mlcbuild.errors import WorkspaceError

PACKAGE = "model_package"
LIBRARY = "model_library"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A value, and the keys that lead to it."""

    value: str
    keys: Keys


@dataclass(frozen=True, kw_only=True)
class CompileOption:
    """A device, None for any, and overrides, with the keys that lead to them. They are for one quantization, or all."""

    device: Wanted | None
    overrides: Mapping[str, Any]
    keys: Keys
    quantization: str = ""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A model for every one of the options and quantizations. Without quantizations its name says which it has."""

    rule: str
    model_id: str
    model: Wanted
    quantizations: tuple[Wanted, ...]
    options: tuple[CompileOption, ...]


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What a file asks for. `kind` names the format, `ignored` are values without a counterpart, with the reason."""

    kind: str
    jobs: tuple[Job, ...]
    ignored: list[tuple[Keys, str]] = field(default_factory=list)


def read_spec(file: JsonFile) -> Spec:
    """Raises WorkspaceError for a file of another form, at the place of what is wrong."""
    document = file.table(file.content, ())
    if "model_list" in document:
        return _package_config(file, document)
    if "tasks" not in document:
        raise WorkspaceError(
            "not a file of MLC-LLM that can be imported",
            location=file.location(()),
            advice=(
                'known: mlc-package-config.json (with "model_list"), specs of lib_delivery and delivery (with "tasks")',
            ),
        )
    tasks: list[tuple[Keys, dict[str, Any]]] = [
        (("tasks", index), file.table(task, ("tasks", index)))
        for index, task in enumerate(file.list(document["tasks"], ("tasks",)))
    ]
    is_of_libraries = any(name in document for name in ("default_compile_options", "binary_libs_dir")) or any(
        "compile_options" in task for _, task in tasks
    )
    return _lib_delivery(file, document, tasks) if is_of_libraries else _delivery(file, document, tasks)


def _package_config(file: JsonFile, document: dict[str, Any]) -> Spec:
    spec = Spec(kind="mlc-package-config.json", jobs=())
    device = Wanted(value=file.string(document.get("device"), ("device",)), keys=("device",))
    jobs = []
    for index, each in enumerate(file.list(document["model_list"], ("model_list",))):
        keys: Keys = ("model_list", index)
        entry = file.table(each, keys)
        overrides = file.table(entry.get("overrides", {}), (*keys, "overrides"))
        option = CompileOption(device=device, overrides=overrides, keys=(*keys, "overrides"))
        rule = PACKAGE if entry.get("bundle_weight") is True else LIBRARY
        jobs.append(
            Job(
                rule=rule,
                model_id=_id(file, entry, keys),
                model=_model(file, entry, keys),
                quantizations=(),
                options=(option,),
            )
        )
        spec.ignored.extend(
            ((*keys, name), reason)
            for name, reason in (
                ("estimated_vram_bytes", "a library's metadata has the memory that it needs"),
                ("model_lib", "libraries have no prefix, and the name of their target"),
            )
            if name in entry
        )
    if "model_lib_path_for_prepare_libs" in document:
        spec.ignored.append((("model_lib_path_for_prepare_libs",), "libraries are built, and not taken from elsewhere"))
    return Spec(kind=spec.kind, jobs=tuple(jobs), ignored=spec.ignored)


def _lib_delivery(file: JsonFile, document: dict[str, Any], tasks: list[tuple[Keys, dict[str, Any]]]) -> Spec:
    ignored: list[tuple[Keys, str]] = []
    if "binary_libs_dir" in document:
        ignored.append((("binary_libs_dir",), "outputs are placed in mlcbuild-out/"))
    jobs = [
        Job(
            rule=LIBRARY,
            model_id=_id(file, task, keys),
            model=_model(file, task, keys),
            quantizations=(
                *_names(file, document.get("default_quantization", []), ("default_quantization",)),
                *_names(file, task.get("quantization", []), (*keys, "quantization")),
            ),
            options=(
                *_options(file, document.get("default_compile_options", []), ("default_compile_options",)),
                *_options(file, task.get("compile_options", []), (*keys, "compile_options")),
            ),
        )
        for keys, task in tasks
    ]
    return Spec(kind="a spec of lib_delivery", jobs=tuple(jobs), ignored=ignored)


def _delivery(file: JsonFile, document: dict[str, Any], tasks: list[tuple[Keys, dict[str, Any]]]) -> Spec:
    ignored: list[tuple[Keys, str]] = []
    if "default_destination" in document:
        ignored.append((("default_destination",), _DESTINATION))
    general = file.table(document.get("default_overrides", {}), ("default_overrides",))
    jobs = []
    for keys, task in tasks:
        own = file.table(task.get("overrides", {}), (*keys, "overrides"))
        places: dict[str, Keys] = {name: ("default_overrides", name) for name in general}
        places |= {name: (*keys, "overrides", name) for name in own}
        quantizations = [*_names(file, document.get("default_quantization", []), ("default_quantization",))]
        quantizations += _names(file, task.get("quantization", []), (*keys, "quantization"))
        options = [
            CompileOption(
                device=None,
                overrides=file.table({**general, **own}.get(name.value, {}), places.get(name.value, keys)),
                keys=places.get(name.value, keys),
                quantization=name.value,
            )
            for name in quantizations
        ]
        jobs.append(
            Job(
                rule=PACKAGE,
                model_id=_id(file, task, keys),
                model=_model(file, task, keys),
                quantizations=tuple(quantizations),
                options=tuple(options),
            )
        )
        ignored += [((*keys, name), reason) for name, reason in _IGNORED_OF_DELIVERY if task.get(name)]
    return Spec(kind="a spec of delivery", jobs=tuple(jobs), ignored=ignored)


_DESTINATION = "nothing is uploaded by a build"
_IGNORED_OF_DELIVERY = (
    ("conv_template", "a package has the chat template of its model"),
    ("destination", _DESTINATION),
    ("gen_config_only", "a package always has its weights"),
)


def _id(file: JsonFile, entry: Mapping[str, Any], keys: Keys) -> str:
    return file.string(entry.get("model_id"), (*keys, "model_id"))


def _model(file: JsonFile, entry: Mapping[str, Any], keys: Keys) -> Wanted:
    return Wanted(value=file.string(entry.get("model"), (*keys, "model")), keys=(*keys, "model"))


def _names(file: JsonFile, value: Any, keys: Keys) -> list[Wanted]:
    """A list of strings; `delivery` also takes one string."""
    if isinstance(value, str):
        return [Wanted(value=value, keys=keys)]
    return [
        Wanted(value=file.string(each, (*keys, index)), keys=(*keys, index))
        for index, each in enumerate(file.list(value, keys))
    ]


def _options(file: JsonFile, value: Any, keys: Keys) -> list[CompileOption]:
    found = []
    for index, each in enumerate(file.list(value, keys)):
        place: Keys = (*keys, index)
        option = file.table(each, place)
        device = Wanted(value=file.string(option.get("device"), (*place, "device")), keys=(*place, "device"))
        overrides = file.table(option.get("overrides", {}), (*place, "overrides"))
        found.append(CompileOption(device=device, overrides=overrides, keys=(*place, "overrides")))
    return found
