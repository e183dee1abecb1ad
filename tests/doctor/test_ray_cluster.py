"""Checks of a cluster: its token, its nodes, and a missing cluster."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.doctor import ray_cluster
from mlcbuild.doctor.examination import Examined, examine_all
from mlcbuild.doctor.finding import FindingCause, Verdict
from mlcbuild.execution.machine_resources import MachineResources
from mlcbuild.execution.ray.demand import Node
from mlcbuild.execution.ray.probing import ProbedNode
from mlcbuild.execution.ray.settings import RaySettings

GIB = 1 << 30
SETTINGS = RaySettings(address="10.0.0.1:6379")


def seen(name: str, machine: MachineResources, **more: object) -> ProbedNode:
    labels = (*machine.labels, ("ray.io/node-id", f"id-of-{name}"))
    node = Node(identifier=name, name=name, resources=replace(machine, labels=labels))
    return replace(ProbedNode(node=node), **more)  # type: ignore[arg-type]


HEAD = seen("head", MachineResources(cpus=0), unused="it has no cpus")
PLAIN = MachineResources(cpus=2, memory_bytes=8 * GIB)
HOPPER = seen("hopper", MachineResources(cpus=64, gpus=8, memory_bytes=512 * GIB, labels=(("arch", "sm_90"),)))


def test_equal_nodes_share_one_finding() -> None:
    unlike = ("mlcbuild: 0.1.0 aaaa there, 0.1.0 bbbb here",)
    found = ray_cluster.rows(
        [
            HEAD,
            *(seen(f"n{number}", PLAIN) for number in range(3)),
            HOPPER,
            seen("old", PLAIN, differences=unlike),
            seen("other", PLAIN, differences=("toolchain nvrtc: absent there, cccc here",)),
            seen("dead", PLAIN, error="it does not answer"),
            seen("near", PLAIN, shares_store=True),
        ]
    )
    assert [(row.verdict.value, row.measured) for row in found] == [
        ("ok", "head: 0 cpus; runs no actions: it has no cpus"),
        ("ok", "n0 and 2 more: 2 cpus, 8.0 GiB; has its own store; same as this machine"),
        ("ok", "hopper: 64 cpus, 8 GPUs, 512.0 GiB, arch=sm_90; has its own store; same as this machine"),
        ("warning", "old: 2 cpus, 8.0 GiB; not used: it differs"),
        ("warning", "other: 2 cpus, 8.0 GiB; has its own store; other toolchains"),
        ("warning", "dead: 2 cpus, 8.0 GiB; not used: it does not answer"),
        ("ok", "near: 2 cpus, 8.0 GiB; shares the store of this machine; same as this machine"),
    ]
    assert found[3].advice == (*unlike, "install the same mlcbuild and the same dependencies on every node")
    assert found[2].figures["labels"] == "arch=sm_90"
    assert found[1].figures["names"] == "n0 n1 n2"


def test_many_groups_of_nodes_are_counted() -> None:
    found = ray_cluster.rows([seen(f"n{number}", MachineResources(cpus=number + 1)) for number in range(30)])
    assert len(found) == 21
    assert found[-1].measured == "and 10 more, in other groups"


def test_the_sum_of_a_cluster() -> None:
    versions = {"python": "cpython 3.11.7 final", "ray": "2.60.0", "mlcbuild": "0.1.0 aaaa"}
    finding = ray_cluster.sum_of([HEAD, HOPPER, seen("old", PLAIN, differences=("ray: x",))], SETTINGS, versions)
    assert (finding.verdict, finding.measured) == (Verdict.OK, "1 of 3 run actions: 64 cpus, 8 GPUs")
    assert finding.figures["ray"] == "2.60.0"

    finding = ray_cluster.sum_of([HEAD, seen("old", PLAIN, differences=("ray: x",))], SETTINGS, versions)
    assert (finding.verdict, finding.cause) == (Verdict.ERROR, FindingCause.MACHINE)

    finding = ray_cluster.sum_of([HEAD], SETTINGS, versions)
    assert (finding.verdict, finding.cause) == (Verdict.ERROR, FindingCause.SETTINGS)
    assert finding.advice == ("give a node cpus (ray start --num-cpus)",)

    growing = replace(SETTINGS, may_scale_to=(PLAIN,))
    finding = ray_cluster.sum_of([HEAD], growing, versions)
    assert (finding.verdict, finding.measured) == (
        Verdict.OK,
        "none of 1 runs actions now; the autoscaler may add 1 kind of nodes",
    )


def test_the_token_is_found_where_ray_finds_it(tmp_path: Path) -> None:
    def told(**variables: str) -> tuple[Verdict, str]:
        finding = ray_cluster.token({"HOME": str(tmp_path), **variables})
        assert "secret" not in "".join((finding.measured, *finding.advice))
        return finding.verdict, finding.measured

    path = tmp_path / ".ray/auth_token"
    assert told() == (Verdict.ERROR, f"{path} cannot be read: No such file or directory")
    assert told(RAY_AUTH_TOKEN="secret") == (Verdict.OK, "in RAY_AUTH_TOKEN")
    path.parent.mkdir()
    path.write_text("secret\n")
    path.chmod(0o644)
    assert told() == (Verdict.WARNING, f"other users may access {path} (mode 0644)")
    path.chmod(0o600)
    assert told() == (Verdict.OK, f"in {path}, private")
    other = tmp_path / "other"
    other.write_text("")
    assert told(RAY_AUTH_TOKEN_PATH=str(other)) == (Verdict.ERROR, f"{other} is empty")
    assert told(RAY_AUTH_MODE="disabled")[0] is Verdict.WARNING


def examined(settings: RaySettings | None, tmp_path: Path) -> dict[str, Examined]:
    part = ray_cluster.ray_part(settings, store=tmp_path, function=DigestFunction.BLAKE3, environment={})
    return {each.name: each for each in examine_all([part], tick=lambda *_: None)}


@pytest.mark.slow
def test_a_cluster_that_does_not_exist_is_reported_at_once(tmp_path: Path) -> None:
    with socket.socket() as nobodys:
        nobodys.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{nobodys.getsockname()[1]}"
        found = examined(RaySettings(address=address), tmp_path)
    assert found["cluster"].finding.measured == f"{address} does not accept connections: Connection refused"
    assert found["cluster"].seconds < 5
    later = [found[name].finding for name in ("strangers", "nodes", "tasks")]
    assert {(each.verdict, each.measured) for each in later} == {(Verdict.SKIPPED, "not tested: there is no cluster")}


@pytest.mark.slow
def test_where_no_cluster_is_chosen_ray_alone_is_tried(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    found = examined(None, tmp_path)
    assert list(found) == ["Ray", "cluster"]
    assert found["Ray"].finding.verdict is Verdict.OK
    assert found["cluster"].finding.verdict is Verdict.SKIPPED


def test_a_chosen_ray_that_is_not_installed_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nothing:
        def __init__(self, _memory: object) -> None: ...

        def find(self, _name: str) -> None:
            return None

    monkeypatch.setattr(ray_cluster, "Distributions", Nothing)
    assert ray_cluster.installed(is_needed=True).verdict is Verdict.ERROR
    assert ray_cluster.installed(is_needed=False).verdict is Verdict.SKIPPED
