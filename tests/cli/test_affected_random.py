"""`mlcbuild affected` after random edits of a sample workspace, against builds of everything at both states.

`python -m tests.cli.test_affected_random [SEED]` prints the table of docs/command-line.md.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.cli.affected_sample import EDITS, EDITS_OF_MODELS, Edit, Sample
from tests.cli.affected_truth import ALL_RESULTS, FORMER_RESULTS, NO_RESULTS, Compared, Repository, table
from tests.end_to_end.world import World

# Of each kind of reason one: a file, a link, a declaration, a rule, and a comment.
QUICK = (
    Sample.file_behind_a_link,
    Sample.toolchain_file,
    Sample.target_renamed,
    Sample.rule_code,
    Sample.stage_comment,
)

# What no key contains.
NO_CHANGE = {
    "comment_of_targets",
    "format_of_targets",
    "order_of_targets",
    "pass_comment",
    "rule_comment",
    "stage_comment",
    "stage_format",
    "unrelated_file",
}


def edited(folder: Path, seed: int, edits: Sequence[Edit], *, with_models: bool = False) -> Iterator[Compared]:
    """Make the edits in a random order, each on top of the others, with random places and values."""
    chance = random.Random(seed)
    world = World(folder)
    sample = Sample(chance=chance, with_models=with_models)
    sample.write(world.root)
    repository = Repository(world)
    repository.begin()
    for edit in chance.sample(edits, len(edits)):
        edit(sample)
        sample.write(world.root)
        yield repository.compare(edit.__name__, is_committed=chance.random() < 0.5)


def check(compared: Compared) -> None:
    assert not compared.missed, (compared.edit, compared.missed)
    assert compared.edit not in NO_CHANGE or not compared.changed | compared.listed[NO_RESULTS], compared
    assert compared.listed[ALL_RESULTS] <= compared.listed[FORMER_RESULTS] <= compared.listed[NO_RESULTS]
    # Where both results are known, only groups of files are listed beyond what changed: for an output that was made
    # anew with the same bytes.
    assert compared.excess(ALL_RESULTS) <= {"//:bundle", "//:notes"}, (compared.edit, compared.excess(ALL_RESULTS))


def test_no_target_is_missed_after_some_edits(tmp_path: Path) -> None:
    for compared in edited(tmp_path, 5, QUICK):
        check(compared)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", [1, 2])
def test_no_target_is_missed_after_any_edit(seed: int, tmp_path: Path) -> None:
    for compared in edited(tmp_path, seed, EDITS):
        check(compared)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_no_library_is_missed_after_any_edit_of_models(tmp_path: Path) -> None:
    for compared in edited(tmp_path, 3, EDITS_OF_MODELS, with_models=True):
        check(compared)


if __name__ == "__main__":
    found: list[Compared] = []
    for number, (kinds, has_models) in enumerate(((EDITS, False), (EDITS_OF_MODELS, True))):
        with tempfile.TemporaryDirectory() as place:
            seed = int(sys.argv[1]) if len(sys.argv) > 1 else 1
            found += edited(Path(place), seed + number, kinds, with_models=has_models)
    print(table(found))
