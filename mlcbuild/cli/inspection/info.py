"""`mlcbuild info`: versions, paths, and what can be built here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import mlcbuild
from mlcbuild.cache.disk import default_root
from mlcbuild.cli.arguments.options import RECORD_DIRECTORY, STATE_DIRECTORY, GlobalOptions
from mlcbuild.cli.exit_codes import ExitCode, exit_code_of
from mlcbuild.cli.log.records import iterate, stored_bytes, unnumbered
from mlcbuild.cli.output import text
from mlcbuild.cli.output.errors import error_lines
from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.output.terminal import OutputFormat
from mlcbuild.cli.settings.remote import RemoteOptions, resolve_remote
from mlcbuild.cli.workspace.opening import check_directory, is_in_workspace
from mlcbuild.errors import MlcbuildError, WorkspaceErrors
from mlcbuild.figures import byte_count
from mlcbuild.rules.backend import backends
from mlcbuild.rules.families import families
from mlcbuild.rules.registry import load_rules
from mlcbuild.rules.repositories import PLATFORMS, repositories
from mlcbuild.rules.rule import Rule
from mlcbuild.rules.schemes import NAMES
from mlcbuild.toolchains.table import Toolchains, every
from mlcbuild.workspace.configuration import DEFAULT_CONFIGURATION
from mlcbuild.workspace.label import Label
from mlcbuild.workspace.loader import LoadedWorkspace, LoadErrors, load
from mlcbuild.workspace.pattern import parse_pattern
from mlcbuild.workspace.schema import PLATFORM, Attribute
from mlcbuild.workspace.settings import WorkspaceSettings, find_root, load_settings

_Answer = TypeVar("_Answer")
_EVERYTHING = ("//...", f"@{PLATFORMS}//...")


def print_info(options: GlobalOptions, *, configuration: str, output: OutputFormat) -> ExitCode:
    """Print the facts, those of the workspace as far as it has no errors, and the errors; returns their exit code.

    Raises UsageError for a directory that does not exist.
    """
    check_directory(options.directory)
    errors: list[MlcbuildError] = []
    document = _document(options, configuration, errors)
    if output is OutputFormat.JSON:
        print_json(document)
    else:
        width = options.width(sys.stdout)
        for name, value in _rows(document):
            print("\n".join(text.listed(value.split(", "), start=f"{name:<16}", indent=16, width=width)))
    style = options.style(sys.stderr)
    for error in errors:
        options.tell(error_lines(error, style=style))
    return exit_code_of(errors[0]) if errors else ExitCode.OK


def _document(options: GlobalOptions, configuration: str, errors: list[MlcbuildError]) -> dict[str, object]:
    directory, environment = options.directory, options.environment
    no_workers: list[dict[str, object]] = []
    document: dict[str, object] = {
        "version": mlcbuild.__version__,
        "paths": {"disk_cache": str(default_root())},
        "workers": _answer(lambda: _workers(environment), no_workers, errors),
        "model_types": sorted(name for family in families() for name in family.model_types),
        "families": [
            {"name": family.name, "models": family.models, "gguf_architectures": sorted(family.gguf)}
            for family in families()
        ],
        "quantizations": sorted(NAMES),
        "toolchains": _toolchains(),
        "platforms": [
            {"label": f"@{PLATFORMS}//:{name}", "kind": kind}
            for kind, backend in backends().items()
            for name in sorted(backend.platforms)
        ],
        "configurations": [],
        "rules": [],
    }
    rules = load_rules(Path(), ())
    if is_in_workspace(directory):
        root = find_root(directory)
        document["paths"] = {
            "workspace": str(root),
            "state": str(root / STATE_DIRECTORY),
            "disk_cache": str(default_root()),
        }
        document["history"] = _history(root / STATE_DIRECTORY / RECORD_DIRECTORY)
        settings = _answer(lambda: load_settings(root, tolerant=True), None, errors)
        if settings is not None:
            rules = _answer(lambda: load_rules(root, settings.rules), rules, errors)
            document |= _workspace(settings, rules, environment, configuration, errors)
    document["rules"] = [_rule(rule) for _, rule in sorted(rules.items())]
    document["errors"] = [
        {"location": str(error.location or ""), "message": error.message, "advice": list(error.advice)}
        for error in errors
    ]
    return document


def _history(directory: Path) -> dict[str, object]:
    """Where the records of builds lie, how many there are, and their bytes."""
    return {
        "path": str(directory),
        "builds": sum(1 for _ in iterate(directory)),
        "no_ops": sum(record.is_no_op for record in unnumbered(directory)),
        "bytes": stored_bytes(directory),
    }


def _workspace(
    settings: WorkspaceSettings,
    rules: Mapping[str, Rule],
    environment: Mapping[str, str],
    configuration: str,
    errors: list[MlcbuildError],
) -> dict[str, object]:
    # Without its rule files, a workspace has further errors that say nothing new.
    found: list[MlcbuildError] = [] if errors else errors
    loaded = _load(settings.root, rules, configuration or DEFAULT_CONFIGURATION, found)
    labels = loaded.select([parse_pattern(pattern) for pattern in _EVERYTHING], with_manual=True)
    return {
        "paths": {
            "workspace": str(settings.root),
            "output": str(settings.root / settings.output),
            "state": str(settings.root / STATE_DIRECTORY),
            "disk_cache": str(default_root()),
        },
        "workspace": settings.name,
        "remote": _answer(lambda: _remote(settings, environment), None, errors),
        "configurations": sorted(settings.configurations),
        "platforms": [
            {"label": str(label), "kind": target.string("kind")}
            for label in labels
            if PLATFORM in (target := loaded.targets[label]).schema.provides
        ],
    }


def _load(root: Path, rules: Mapping[str, Rule], configuration: str, errors: list[MlcbuildError]) -> LoadedWorkspace:
    """The targets that no error concerns."""
    schemas = {name: rule.schema for name, rule in rules.items()}
    try:
        return load(root, schemas, _EVERYTHING, configuration=configuration, repositories=repositories())
    except LoadErrors as found:
        errors += found.errors
        return found.sound


def _answer(ask: Callable[[], _Answer], otherwise: _Answer, errors: list[MlcbuildError]) -> _Answer:
    """What `ask` returns; `otherwise` if it raises an error of the user's, which is collected."""
    try:
        return ask()
    except WorkspaceErrors as found:
        errors += found.errors
    except MlcbuildError as error:
        errors.append(error)
    return otherwise


def _workers(environment: Mapping[str, str]) -> list[dict[str, object]]:
    """The warm workers that wait for a build."""
    from mlcbuild.cli.build.executors import worker_pool
    from mlcbuild.execution.server_pool import pooled_servers

    return [
        {"pid": server.pid, "holds": list(server.preload), "running": server.running}
        for server in pooled_servers(worker_pool(environment))
    ]


def _remote(settings: WorkspaceSettings, environment: Mapping[str, str]) -> dict[str, object] | None:
    """The remote cache of a build without options; None if there is none."""
    found = resolve_remote(RemoteOptions(), environment, settings)
    if found is None:
        return None
    configuration = found.configuration
    return {
        "address": configuration.shown,
        "role": configuration.policy.role.value,
        "upload": configuration.policy.upload.value,
        "namespace": configuration.namespace,
        "trusted_keys": [key.line for key in configuration.trusted_keys],
        "signs": configuration.signing_key is not None,
    }


def _toolchains() -> dict[str, str]:
    """The version of each toolchain, or a program's path; "" for what is not installed."""
    toolchains = Toolchains()
    return {each.name: toolchains.version(each.name) for each in every() if not each.takes_path}


def _rule(rule: Rule) -> dict[str, object]:
    schema = rule.schema
    return {
        "name": schema.name,
        "doc": schema.doc,
        "attributes": [_attribute(attribute) for attribute in schema.attributes],
    }


def _attribute(attribute: Attribute) -> dict[str, object]:
    default = attribute.value_if_absent
    return {
        "name": attribute.name,
        "type": attribute.kind.value,
        "doc": attribute.doc,
        "mandatory": attribute.mandatory,
        "default": str(default) if isinstance(default, Label) else default,
        "allowed": list(attribute.allowed),
    }


def _rows(document: dict[str, object]) -> list[tuple[str, str]]:
    def names(key: str, field: str = "") -> str:
        values = document[key]
        assert isinstance(values, list)
        return ", ".join(str(value[field]) if field else str(value) for value in values)

    paths, toolchains = document["paths"], document["toolchains"]
    assert isinstance(paths, dict)
    assert isinstance(toolchains, dict)
    rows = [("mlcbuild", str(document["version"]))]
    rows += [(str(name).replace("_", " "), str(path)) for name, path in paths.items()]
    if isinstance(history := document.get("history"), dict) and history["bytes"]:
        builds = f"{text.plural(history['builds'], 'build')}, {history['no_ops']:,} more with nothing to do"
        rows += [("history", f"{history['path']} ({builds}; {byte_count(history['bytes'])})")]
    if isinstance(remote := document.get("remote"), dict):
        rows += [("remote", f"{remote['address']} ({remote['role']})")]
    if isinstance(workers := document["workers"], list) and workers:
        held = [f"{worker['pid'] or 'starting'} ({', '.join(worker['holds']) or 'nothing'})" for worker in workers]
        rows += [("warm workers", ", ".join(held))]
    rows += [("models", names("families", "models")), ("model types", names("model_types"))]
    rows += [("quantizations", names("quantizations"))]
    rows += [("platforms", names("platforms", "label")), ("configurations", names("configurations"))]
    rows += [("toolchains", ", ".join(f"{name} {found or '(none)'}" for name, found in toolchains.items()))]
    rows += [("rules", names("rules", "name"))]
    return [(name, value) for name, value in rows if value]
