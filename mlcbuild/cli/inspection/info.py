"""`mlcbuild info`: versions, paths, and what can be built here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import mlcbuild
from mlcbuild.cache.disk import default_root
from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.output.terminal import OutputFormat
from mlcbuild.cli.settings.remote import RemoteOptions, resolve_remote
from mlcbuild.cli.workspace.opening import OpenWorkspace, is_in_workspace, open_workspace
from mlcbuild.rules.backend import backends
from mlcbuild.rules.families import families
from mlcbuild.rules.registry import load_rules
from mlcbuild.rules.repositories import PLATFORMS
from mlcbuild.rules.rule import Rule
from mlcbuild.rules.schemes import NAMES
from mlcbuild.toolchains.table import Toolchains, every
from mlcbuild.workspace.label import Label
from mlcbuild.workspace.pattern import parse_pattern
from mlcbuild.workspace.schema import PLATFORM, Attribute

_EVERYTHING = ("//...", f"@{PLATFORMS}//...")


def print_info(directory: Path, environment: Mapping[str, str], *, configuration: str, output: OutputFormat) -> None:
    """Print the facts. Raises WorkspaceErrors, because it loads the workspace to list its platforms."""
    opened = open_workspace(directory) if is_in_workspace(directory) else None
    document = _document(opened, environment, configuration)
    if output is OutputFormat.JSON:
        print_json(document)
        return
    for name, value in _rows(document):
        print(f"{name:<16}{value}")


def _document(opened: OpenWorkspace | None, environment: Mapping[str, str], configuration: str) -> dict[str, object]:
    rules = opened.rules if opened else load_rules(Path(), ())
    document: dict[str, object] = {
        "version": mlcbuild.__version__,
        "paths": {"disk_cache": str(default_root())},
        "workers": _workers(environment),
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
        "rules": [_rule(rule) for _, rule in sorted(rules.items())],
    }
    if opened:
        loaded = opened.load(_EVERYTHING, configuration)
        document["workspace"] = opened.settings.name
        document["paths"] = {
            "workspace": str(opened.root),
            "output": str(opened.output_root),
            "state": str(opened.state_directory),
            "disk_cache": str(default_root()),
        }
        document["remote"] = _remote(opened, environment)
        document["configurations"] = sorted(opened.settings.configurations)
        document["platforms"] = [
            {"label": str(label), "kind": target.string("kind")}
            for label in loaded.select([parse_pattern(pattern) for pattern in _EVERYTHING], with_manual=True)
            if PLATFORM in (target := loaded.targets[label]).schema.provides
        ]
    return document


def _workers(environment: Mapping[str, str]) -> list[dict[str, object]]:
    """The warm workers that wait for a build."""
    from mlcbuild.cli.build.executors import worker_pool
    from mlcbuild.execution.server_pool import pooled_servers

    return [
        {"pid": server.pid, "holds": list(server.preload), "running": server.running}
        for server in pooled_servers(worker_pool(environment))
    ]


def _remote(opened: OpenWorkspace, environment: Mapping[str, str]) -> dict[str, object] | None:
    """The remote cache of a build without options; None if there is none."""
    found = resolve_remote(RemoteOptions(), environment, opened.settings)
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
