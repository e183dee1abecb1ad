"""Builds on a real cluster of a head and three nodes, each with its own store."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import shutil
from pathlib import Path

import pytest

import mlcbuild
from mlcbuild.cache.digest import DigestFunction
from mlcbuild.engine.action import MORE_CPUS_THAN_ANY
from tests.end_to_end.world import World, command
from tests.execution.ray.cluster_world import RayCluster
from tests.execution.ray.conftest import ClusterWorld, HttpRemote

pytestmark = pytest.mark.slow

_ON_HOPPER = 'requirements = { gpus = 1, labels = { arch = "sm_90" } }'
_RULE = '''\
"""`count`: a stage of the workspace's own, in two modules and with a file beside them."""

from mlcbuild.engine.action import ExecutionRequirements
from mlcbuild.rules.providers import FilesInfo
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema


def implement(context: RuleContext) -> Providers:
    text = context.files(context.target.label_of("text"))
    action = context.stage("Count", "counting.stage:run", inputs={"text": text}, outputs={"counted": "counted.json"})
    return (FilesInfo(files=(("counted.json", action.output("out/counted.json")),)),)


COUNT = Rule(
    schema=RuleSchema(
        name="count",
        doc="Counts.",
        attributes=(Attribute(name="text", kind=AttributeKind.LABEL, allow_files=True, mandatory=True, doc="A file."),),
        provides=("files",),
    ),
    implementation=implement,
)
'''
_STAGE = """\
import json
from pathlib import Path

from counting.words import words_in


def run(*, text: Path, counted: Path) -> None:
    ignored = (Path(__file__).parent / "ignored.txt").read_text().split()
    counted.write_text(json.dumps(len([word for word in words_in(text.read_text()) if word not in ignored])))
"""


def digests_below(root: Path) -> dict[str, str]:
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def pattern(world: World) -> None:
    """Small and large files, directories, executables, a chain, a fan, and a stage of the workspace's own."""
    world.write("counting/words.py", "def words_in(text: str) -> list[str]:\n    return text.split()\n")
    world.write("counting/stage.py", _STAGE)
    world.write("counting/ignored.txt", "of the")
    world.write("counting/rule.py", _RULE)
    world.write("text.txt", "the end of the line")
    world.write("large.bin", bytes(range(256)) * 80_000)  # 20 MB: several pieces
    head = '[workspace]\nname = "example"\nrules = ["//counting:rule.py"]\n\n[[tool]]\nname = "sh"\npath = "/bin/sh"\n'
    world.commands(
        command("small", "echo small > $1"),
        command("chain", "cat $2 $2 > $1", inputs=[":small"], outputs=["chained"]),
        command("grown", "cat $2 > $1; echo more >> $1", inputs=["large.bin"]),
        command("again", "cat $2 $3 > $1", inputs=[":grown", ":chain"]),
        command(
            "tree",
            "mkdir -p $1/a/b; echo x > $1/a/b/x; printf '#!/bin/sh\\n' > $1/run; chmod +x $1/run",
            outputs=["d/"],
        ),
        *(command(f"fan-{number}", f"echo {number} > $1; cat $2 >> $1", inputs=[":chain"]) for number in range(6)),
        '[[count]]\nname = "count"\ntext = "text.txt"\n',
        head=head,
    )


def test_a_build_on_a_cluster_makes_the_bytes_that_a_local_one_makes(
    world: ClusterWorld, cluster: RayCluster, tmp_path: Path
) -> None:
    pattern(world)
    report = tmp_path / "report.json"
    done = world.process("build", "--build-report", str(report), ":all")
    assert done.code == 0, done.err
    counts = json.loads(report.read_text())["actions"]
    assert counts["executed_ray"] == counts["total"] == 12
    there = digests_below(world.root / "mlcbuild-out")

    here = ClusterWorld(tmp_path / "here", cluster.namespace, None)
    pattern(here)
    done = here.process("build", ":all")
    assert done.code == 0, done.err
    assert digests_below(here.root / "mlcbuild-out") == there
    assert (world.root / "mlcbuild-out/default/count/counted.json").read_text() == "2"
    assert world.verify() == 12
    again = world.process("build", "--build-report", str(report), "--executor=local", ":all")
    assert json.loads(report.read_text())["actions"]["up_to_date"] == 12, again.err


def test_blobs_travel_through_the_remote_where_there_is_one(
    world: ClusterWorld, cluster: RayCluster, http_remote: HttpRemote, tmp_path: Path
) -> None:
    pattern(world)
    done = world.process("build", "--remote", http_remote.address, "--remote-upload=results", ":again")
    assert done.code == 0, done.err
    assert "note:" not in done.err
    assert http_remote.end() > 8


def test_an_action_with_gpus_runs_where_they_are_and_sees_those_that_it_was_given(
    world: ClusterWorld, cluster: RayCluster
) -> None:
    script = "echo gpu $CUDA_VISIBLE_DEVICES > $1"
    world.commands(*(command(f"seen-{each}", script, more=_ON_HOPPER) for each in range(2)))
    done = world.process("build", ":all")
    assert done.code == 0, done.err
    for each in range(2):
        content = world.output(f"seen-{each}/out").read_bytes()
        assert content in (b"gpu 0\n", b"gpu 1\n")
        name = DigestFunction.BLAKE3.of_bytes(content).hash
        assert list(cluster.nodes["hopper"].store.rglob(name))
        assert not list(cluster.nodes["ampere"].store.rglob(name))


def test_what_no_node_can_ever_run_fails_at_once_and_says_why(world: ClusterWorld) -> None:
    world.commands(
        command("many", "echo 1 > $1", more="requirements = { cpus = 3 }"),
        command("other", "echo 1 > $1", more='requirements = { labels = { arch = "sm_70" } }'),
    )
    done = world.process("build", "--keep-going", ":all")
    assert done.code == 36
    assert "needs 3 cpus (it has 2)" in done.err
    assert "needs the label arch=sm_70 (it has arch=sm_90)" in done.err


def test_what_stays_on_a_machine_runs_here_and_what_needs_it_on_the_cluster(
    world: ClusterWorld, tmp_path: Path
) -> None:
    world.commands(
        command("local", "echo here > $1", more='cache = "local"'),
        command("remade", "mkdir -p $1; echo again > $1/a", outputs=["d/"], more='cache = "remade"'),
        command("both", "cat in/out in/d/a > $1", inputs=[":local", ":remade"]),
    )
    report = tmp_path / "report.json"
    done = world.process("build", "--build-report", str(report), ":both")
    assert done.code == 0, done.err
    counts = json.loads(report.read_text())["actions"]
    assert (counts["executed_local"], counts["executed_ray"]) == (2, 1)
    assert world.output("both/out").read_text() == "here\nagain\n"


def test_what_runs_alone_gets_a_whole_node_one_at_a_time(world: ClusterWorld) -> None:
    """As measurements do."""
    script = "date +%s.%N > $1; sleep 0.5; date +%s.%N >> $1"
    alone = f"requirements = {{ cpus = {MORE_CPUS_THAN_ANY} }}"
    names = ("one", "two", "three")
    world.commands(*(command(name, script, more=alone) for name in names))
    done = world.process("build", "--jobs", "4", ":all")
    assert done.code == 0, done.err
    times = sorted(
        tuple(float(line) for line in world.output(f"{name}/out").read_text().splitlines()) for name in names
    )
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(times))


def test_with_auto_short_actions_stay_here_and_long_ones_go(world: ClusterWorld) -> None:
    world.environment["MLCBUILD_EXECUTOR"] = "auto"
    world.commands(command("short", "echo 1 > $1"), command("far", "echo $CUDA_VISIBLE_DEVICES > $1", more=_ON_HOPPER))
    done = world.process("build", ":all")
    assert done.code == 0, done.err
    assert "2 ran (1 local, 1 ray)" in done.err
    assert world.output("far/out").read_text().strip() in ("0", "1")


def test_a_node_with_another_mlcbuild_is_told_and_not_used(
    world: ClusterWorld, cluster: RayCluster, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(Path(mlcbuild.__file__).parent, other / "mlcbuild", ignore=shutil.ignore_patterns("__pycache__"))
    with (other / "mlcbuild/errors.py").open("a") as stream:
        stream.write("\n# Changed.\n")
    node = cluster.add("other", cpus=8, environment={"PYTHONPATH": str(other)})
    try:
        world.commands(
            command("wide", "echo 1 > $1", more="requirements = { cpus = 4 }"), command("one", "echo 1 > $1")
        )
        done = world.process("build", "--keep-going", ":all")
        assert " of the Ray cluster is not used, because it differs: " in done.err
        assert re.search(r"mlcbuild: \S+ [0-9a-f]{16} there, \S+ [0-9a-f]{16} here", done.err)
        assert "//:wide" in done.err
        assert "needs 4 cpus (it has 2)" in done.err
        assert "1 ran (1 ray), 1 failed" in done.err
        said = world.process("doctor", "ray").out
        assert "3 of 5 run actions: 4 cpus, 3 GPUs" in said
        assert re.search(r"warning  node .*: 8 cpus, .*; not used: it differs\n +mlcbuild: ", said), said
        assert "install the same mlcbuild" in said
    finally:
        node.kill()
        del cluster.nodes["other"]
