"""The split of random workspaces: the same wherever they are, whatever was built there, and complete."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from mlcbuild.cli.sharding.selection import ShardNumber, Split, split_targets, take_shard
from mlcbuild.rules.analysis import Analysis
from tests.end_to_end.synthetic import Synthetic
from tests.rules.world import analysed


def split_at(root: Path, world: Synthetic, count: int) -> tuple[Analysis, Split]:
    root.mkdir(parents=True)
    world.write(root)
    analysis = analysed(root, "//...")
    return analysis, split_targets(analysis, count, root=root, timings=())


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(1, 5))
def test_every_target_is_in_one_shard_on_every_machine(seed: int, count: int) -> None:
    world = Synthetic.random(random.Random(seed), 25)
    with tempfile.TemporaryDirectory() as folder:
        analysis, found = split_at(Path(folder, "here"), world, count)
        _, elsewhere = split_at(Path(folder, "somewhere", "else"), world, count)
        assert elsewhere == found
        requested = Counter(str(target.label) for target in analysis.requested)
        taken: Counter[str] = Counter()
        for index in range(1, count + 1):
            part = take_shard(analysis, found, ShardNumber(index=index, count=count))
            taken.update(str(target.label) for target in part.requested)
            owners = {str(label) for label in part.targets}
            assert {action.owner for action in part.actions} <= owners
            assert all(set(map(str, needed)) <= owners for needed in part.needs.values())
        assert taken == requested
        assert set(requested.values()) == {1}
