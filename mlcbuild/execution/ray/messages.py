"""Requests, outcomes and environments as JSON values, to run actions on another machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlcbuild.cache.digest import Digest
from mlcbuild.engine.action import ExecutionRequirements, StageCall, ToolCall
from mlcbuild.engine.executor import ExecutionOutcome, ExecutionRequest, FileEntry, OutcomeKind
from mlcbuild.execution.ray.environment_fingerprint import EnvironmentFingerprint
from mlcbuild.execution.ray.node_pool import NodeDescription


def request_to_json(request: ExecutionRequest) -> dict[str, Any]:
    needs = request.requirements
    return {
        "identifier": request.identifier,
        "mnemonic": request.mnemonic,
        "command": _command_to_json(request.command),
        "inputs": entries_to_json(request.inputs),
        "outputs": request.outputs,
        "environment": request.environment,
        "requirements": {
            "cpus": needs.cpus,
            "memory_bytes": needs.memory_bytes,
            "gpus": needs.gpus,
            "labels": needs.labels,
            "timeout_seconds": needs.timeout_seconds,
            "network": needs.network,
            "execution_hints": needs.execution_hints,
        },
        "expected_bytes": request.expected_bytes,
        "is_deterministic": request.is_deterministic,
        "is_reproducible": request.is_reproducible,
        "allowed_modules": sorted(request.allowed_modules),
        "toolchains": request.toolchains,
        "distributions": request.distributions,
        "code": request.code,
        "is_test": request.is_test,
    }


def request_from_json(value: Mapping[str, Any]) -> ExecutionRequest:
    """Raises KeyError, TypeError or ValueError for what `request_to_json` does not make."""
    needs = dict(value["requirements"])
    needs["labels"] = _pairs(needs["labels"])
    needs["execution_hints"] = _pairs(needs["execution_hints"])
    return ExecutionRequest(
        identifier=value["identifier"],
        mnemonic=value["mnemonic"],
        command=_command_from_json(value["command"]),
        inputs=entries_from_json(value["inputs"]),
        outputs=tuple(value["outputs"]),
        environment=_pairs(value["environment"]),
        requirements=ExecutionRequirements(**needs),
        expected_bytes=value["expected_bytes"],
        is_deterministic=value["is_deterministic"],
        is_reproducible=value["is_reproducible"],
        allowed_modules=frozenset(value["allowed_modules"]),
        toolchains=tuple(value["toolchains"]),
        distributions=tuple(value["distributions"]),
        code=tuple(value["code"]),
        is_test=value["is_test"],
    )


def outcome_to_json(outcome: ExecutionOutcome) -> dict[str, Any]:
    """Everything but the log, whose bytes travel beside it."""
    return {
        "identifier": outcome.identifier,
        "kind": outcome.kind.value,
        "outputs": entries_to_json(outcome.outputs),
        "message": outcome.message,
        "notice": outcome.notice,
        "exit_code": outcome.exit_code,
        "timed_out": outcome.timed_out,
        "missing": [str(digest) for digest in outcome.missing],
        "worker": outcome.worker,
        "node": outcome.node,
        "queued_seconds": outcome.queued_seconds,
        "input_seconds": outcome.input_seconds,
        "run_seconds": outcome.run_seconds,
        "output_seconds": outcome.output_seconds,
        "peak_bytes": outcome.peak_bytes,
    }


def outcome_from_json(value: Mapping[str, Any], *, log: bytes) -> ExecutionOutcome:
    """Raises KeyError, TypeError or ValueError for what `outcome_to_json` does not make."""
    fields = dict(value)
    fields["kind"] = OutcomeKind(fields["kind"])
    fields["outputs"] = entries_from_json(fields["outputs"])
    fields["missing"] = tuple(Digest.parse(text) for text in fields["missing"])
    return ExecutionOutcome(**fields, log=log)


def environment_to_json(environment: EnvironmentFingerprint) -> dict[str, str]:
    return dict(environment.components)


def environment_from_json(value: Mapping[str, str]) -> EnvironmentFingerprint:
    return EnvironmentFingerprint(components=dict(value))


def description_from_json(value: Mapping[str, Any]) -> NodeDescription:
    """What a node answers to `describe`, or its error."""
    if "error" in value:
        return NodeDescription(error=str(value["error"]))
    return NodeDescription(
        environment=environment_from_json(value["environment"]), shares_store=bool(value["shares_store"])
    )


def entries_to_json(entries: Sequence[FileEntry]) -> list[list[Any]]:
    return [[entry.path, str(entry.digest), entry.is_executable] for entry in entries]


def entries_from_json(value: Sequence[Sequence[Any]]) -> tuple[FileEntry, ...]:
    """Raises ValueError."""
    return tuple(
        FileEntry(path=path, digest=Digest.parse(digest), is_executable=is_executable)
        for path, digest, is_executable in value
    )


def _command_to_json(command: StageCall | ToolCall) -> dict[str, Any]:
    if isinstance(command, ToolCall):
        return {"arguments": command.arguments}
    return {
        "function": command.function,
        "inputs": command.inputs,
        "groups": command.groups,
        "outputs": command.outputs,
        "parameters": command.parameters,
        "plugins": command.plugins,
    }


def _command_from_json(value: Mapping[str, Any]) -> StageCall | ToolCall:
    if "arguments" in value:
        return ToolCall(arguments=tuple(value["arguments"]))
    return StageCall(
        function=value["function"],
        inputs=_named(value["inputs"]),
        groups=_pairs(value["groups"]),
        outputs=_pairs(value["outputs"]),
        parameters=_pairs(value["parameters"]),
        plugins=_named(value["plugins"]),
    )


def _named(value: Sequence[Sequence[Any]]) -> tuple[tuple[str, str | tuple[str, ...]], ...]:
    """Arguments with one text or several texts each."""
    return tuple((name, one if isinstance(one, str) else tuple(one)) for name, one in value)


def _pairs(value: Sequence[Sequence[Any]]) -> tuple[tuple[Any, Any], ...]:
    return tuple((first, second) for first, second in value)
