"""The options of a Ray task for what an action requires; whether a cluster has it, or may get it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlcbuild.engine.action import MORE_CPUS_THAN_ANY, ExecutionRequirements
from mlcbuild.execution.machine_resources import MachineResources, unmet_requirement

NODE_ID_LABEL = "ray.io/node-id"  # Ray sets it on each node
_SHOWN_REASONS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node of a cluster that is alive. `name` is its host's name, `address` its IP address."""

    identifier: str
    name: str
    resources: MachineResources
    address: str = ""

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Node:
        return cls(
            identifier=value["id"],
            name=value["name"],
            address=value["address"],
            resources=MachineResources(
                cpus=int(value["cpus"]),
                memory_bytes=value["memory_bytes"],
                gpus=value["gpus"],
                labels=tuple((name, text) for name, text in value["labels"]),
            ),
        )

    def has(self, labels: Iterable[tuple[str, str]]) -> bool:
        return set(labels) <= set(self.resources.labels)


def options_for(
    requirements: ExecutionRequirements, *, labels: Sequence[tuple[str, str]] = (), excluded: Sequence[str] = ()
) -> dict[str, Any]:
    """The options of the Ray task for an action, on nodes with `labels` and on none of `excluded` (identifiers)."""
    selector = {**dict(labels), **dict(requirements.labels)}
    if excluded:
        selector[NODE_ID_LABEL] = f"!in({','.join(sorted(excluded))})"
    options: dict[str, Any] = {"num_cpus": requirements.cpus}
    if requirements.gpus:
        options["num_gpus"] = requirements.gpus
    if requirements.memory_bytes:
        options["memory"] = requirements.memory_bytes
    if selector:
        options["label_selector"] = selector
    return options


def with_whole_node(requirements: ExecutionRequirements, machines: Iterable[MachineResources]) -> ExecutionRequirements:
    """What wants to run alone asks for all processors of the largest of the machines that can run it, as Ray knows no
    other way: so no two of them share a node."""
    if requirements.cpus < MORE_CPUS_THAN_ANY:
        return requirements
    found = [machine.cpus for machine in machines if not unmet_requirement(machine, requirements)]
    return replace(requirements, cpus=max(found, default=1))


def unmet_requirement_of(
    nodes: Sequence[Node], may_come: Sequence[MachineResources], requirements: ExecutionRequirements
) -> str:
    """Why neither a node nor a machine that may be added can ever run what has these requirements; "" if one can."""
    reasons: dict[str, list[str]] = {}
    for name, machine in (
        *((node.name, node.resources) for node in nodes),
        *((f"a node of the kind {number + 1} that may come", machine) for number, machine in enumerate(may_come)),
    ):
        reason = unmet_requirement(machine, requirements)
        if not reason:
            return ""
        reasons.setdefault(reason, []).append(name)
    if not reasons:
        return "the cluster has no node that may run actions"
    shown = [f"{_names(names)}: {reason}" for reason, names in list(reasons.items())[:_SHOWN_REASONS]]
    if len(reasons) > _SHOWN_REASONS:
        shown.append(f"and {len(reasons) - _SHOWN_REASONS} more")
    hint = "" if may_come else "; nodes that an autoscaler may add are named in [execution.may_scale_to]"
    return f"no node of the cluster has what the action needs ({'; '.join(shown)}){hint}"


def _names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
