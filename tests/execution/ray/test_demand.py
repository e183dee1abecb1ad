"""The Ray options for what an action requires, and the message about what a cluster lacks."""

from __future__ import annotations

from dataclasses import replace

from mlcbuild.engine.action import MORE_CPUS_THAN_ANY, ExecutionRequirements
from mlcbuild.execution.machine_resources import MachineResources
from mlcbuild.execution.ray.demand import Node, options_for, unmet_requirement_of, with_whole_node

_GIB = 1 << 30
_HOPPER = Node(
    identifier="1" * 56,
    name="hopper",
    resources=MachineResources(cpus=64, memory_bytes=512 * _GIB, gpus=8, labels=(("arch", "sm_90"), ("pool", "build"))),
)
_PLAIN = Node(identifier="2" * 56, name="plain", resources=MachineResources(cpus=16, memory_bytes=32 * _GIB))


def test_an_action_that_needs_nothing_special_asks_for_its_cpu_alone() -> None:
    assert options_for(ExecutionRequirements()) == {"num_cpus": 1}


def test_what_an_action_needs_is_asked_of_ray() -> None:
    needs = ExecutionRequirements(cpus=4, memory_bytes=8 * _GIB, gpus=0.5, labels=(("arch", "sm_90"),))
    assert options_for(needs, labels=(("pool", "build"),), excluded=("b" * 56, "a" * 56)) == {
        "num_cpus": 4,
        "num_gpus": 0.5,
        "memory": 8 * _GIB,
        "label_selector": {
            "pool": "build",
            "arch": "sm_90",
            "ray.io/node-id": f"!in({'a' * 56},{'b' * 56})",
        },
    }


def test_what_one_node_can_run_is_not_refused() -> None:
    nodes = [_PLAIN, _HOPPER]
    assert unmet_requirement_of(nodes, (), ExecutionRequirements(cpus=64)) == ""
    assert unmet_requirement_of(nodes, (), ExecutionRequirements(gpus=8, labels=(("arch", "sm_90"),))) == ""


def test_an_unmet_requirement_says_what_each_node_lacks() -> None:
    told = unmet_requirement_of([_PLAIN, _HOPPER], (), ExecutionRequirements(gpus=1, labels=(("arch", "sm_100"),)))
    assert told == (
        "no node of the cluster has what the action needs (plain: needs 1 GPUs (it has 0), the label arch=sm_100 "
        "(it has none); hopper: needs the label arch=sm_100 (it has arch=sm_90)); nodes that an autoscaler may add are "
        "named in [execution.may_scale_to]"
    )


def test_nodes_that_lack_the_same_are_told_together() -> None:
    nodes = [
        Node(identifier=str(number) * 56, name=f"n{number}", resources=MachineResources(cpus=2)) for number in range(9)
    ]
    told = unmet_requirement_of(nodes, (), ExecutionRequirements(cpus=3))
    assert told.startswith("no node of the cluster has what the action needs (n0 and 8 more: needs 3 cpus (it has 2))")


def test_what_a_node_that_may_come_can_run_is_waited_for() -> None:
    needs = ExecutionRequirements(gpus=4, labels=(("arch", "sm_100"),))
    assert (
        unmet_requirement_of([_PLAIN], [MachineResources(cpus=32, gpus=4, labels=(("arch", "sm_100"),))], needs) == ""
    )
    told = unmet_requirement_of([_PLAIN], [MachineResources(cpus=32, gpus=2, labels=(("arch", "sm_100"),))], needs)
    assert "a node of the kind 1 that may come: needs 4 GPUs (it has 2)" in told
    assert "may_scale_to" not in told


def test_a_cluster_without_nodes_is_told_as_that() -> None:
    assert unmet_requirement_of([], (), ExecutionRequirements()) == "the cluster has no node that may run actions"


def test_what_runs_alone_gets_a_whole_node_of_those_that_can_run_it() -> None:
    alone = ExecutionRequirements(cpus=MORE_CPUS_THAN_ANY)
    machines = [_PLAIN.resources, _HOPPER.resources]
    assert unmet_requirement_of([_PLAIN], (), alone) == ""
    assert with_whole_node(alone, machines).cpus == 64
    small = replace(alone, labels=(("arch", "sm_90"),))
    assert with_whole_node(small, [_PLAIN.resources, replace(_HOPPER.resources, cpus=8)]).cpus == 8
    assert with_whole_node(ExecutionRequirements(cpus=3), machines).cpus == 3
