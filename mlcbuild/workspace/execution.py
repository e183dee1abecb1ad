"""`[execution]`: where actions run. The table may be in the root `BUILD.toml` and in the user's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mlcbuild.errors import Location
from mlcbuild.workspace.error_collector import ErrorCollector
from mlcbuild.workspace.schema import Attribute, AttributeKind, AttributeValue
from mlcbuild.workspace.toml import Origin, TomlFile
from mlcbuild.workspace.values import ValueReader, read_table

EXECUTION_TABLE = "execution"
EXECUTORS = ("local", "ray", "auto")
WORKERS = ("cold", "warm")

EXECUTION_SETTINGS: tuple[Attribute, ...] = (
    Attribute(
        name="executor",
        kind=AttributeKind.CHOICE,
        allowed=EXECUTORS,
        doc="Where actions run: on this machine, on a Ray cluster, or on whichever is faster for each action.",
    ),
    Attribute(
        name="ray_address",
        kind=AttributeKind.STRING,
        nonempty=True,
        doc="host:port of a running Ray cluster. Left out: the executor ray starts a cluster on this machine.",
    ),
    Attribute(
        name="sandbox",
        kind=AttributeKind.BOOLEAN,
        doc="Whether actions may read only what they declare. Default: true.",
    ),
    Attribute(
        name="workers",
        kind=AttributeKind.CHOICE,
        allowed=WORKERS,
        doc="Whether workers end with the build (cold) or wait for the next one (warm). Default: cold.",
    ),
    Attribute(
        name="connect_timeout",
        kind=AttributeKind.DURATION,
        doc="How long a build waits for the cluster at its start, for example 2m.",
    ),
    Attribute(
        name="reconnect_timeout",
        kind=AttributeKind.DURATION,
        doc="How long a build waits for a cluster that is lost during the build, for example 1m.",
    ),
    Attribute(
        name="labels",
        kind=AttributeKind.STRING_MAP,
        doc="Labels that a node must have to be used.",
    ),
    Attribute(
        name="may_scale_to",
        kind=AttributeKind.TABLE,
        doc="Kinds of nodes that the autoscaler may add, by name, with their cpus, memory, gpus and labels.",
    ),
)
"""The settings in `[execution]`."""

NODE_KIND_SETTINGS: tuple[Attribute, ...] = (
    Attribute(name="cpus", kind=AttributeKind.INTEGER, mandatory=True, minimum=1, doc="Its CPUs."),
    Attribute(name="memory", kind=AttributeKind.SIZE, doc="Its memory, for example 64GiB. Left out: unlimited."),
    Attribute(name="gpus", kind=AttributeKind.INTEGER, minimum=0, default=0, doc="Its GPUs."),
    Attribute(name="labels", kind=AttributeKind.STRING_MAP, doc="Its labels."),
)
"""The settings of a kind of node, in `[execution.may_scale_to.NAME]`."""


@dataclass(frozen=True, kw_only=True)
class ExecutionTable:
    """The table of one file. `values` has the settings in it, without defaults. `node_kinds` are the tables in
    `may_scale_to`, by name, with defaults.
    """

    values: Mapping[str, AttributeValue]
    node_kinds: Mapping[str, Mapping[str, AttributeValue]]
    origin: Origin = field(repr=False)

    def location(self, name: str) -> Location:
        return self.origin.at(name).location


def read_execution(file: TomlFile, errors: ErrorCollector) -> ExecutionTable:
    """Read the `[execution]` table of a file. Errors are collected."""
    origin = Origin(file, (EXECUTION_TABLE,))
    reader = ValueReader(owner=f"[{EXECUTION_TABLE}]", package="", errors=errors)
    raw = file.content[EXECUTION_TABLE]
    said = set(raw) if isinstance(raw, dict) else set()
    values = {
        name: value for name, value in read_table(raw, EXECUTION_SETTINGS, origin, reader).items() if name in said
    }
    kinds: dict[str, Mapping[str, AttributeValue]] = {}
    told = values.get("may_scale_to")
    for name, raw_kind in told.items() if isinstance(told, Mapping) else ():
        place = f"{EXECUTION_TABLE}.may_scale_to.{name}"
        inner = ValueReader(owner=f"[{place}]", package="", errors=errors)
        kinds[name] = read_table(raw_kind, NODE_KIND_SETTINGS, origin.at("may_scale_to").at(name), inner)
    return ExecutionTable(values=values, node_kinds=kinds, origin=origin)
