"""The critical path of a build, and the slack of other actions."""

from __future__ import annotations

import itertools
import random

from mlcbuild.engine.build_events import PathStep
from mlcbuild.engine.critical_path import Chains


def step(name: str, seconds: float) -> PathStep:
    return PathStep(identifier=name, mnemonic=name.upper(), seconds=seconds)


def names(executed: dict[str, float], producers: dict[str, list[str]]) -> list[str]:
    steps = {name: step(name, seconds) for name, seconds in executed.items()}
    return [item.identifier for item in Chains(steps, lambda name: producers.get(name, [])).longest()]


def test_it_is_the_longest_by_seconds_not_by_steps() -> None:
    producers = {"d": ["a", "c"], "c": ["b"]}
    assert names({"a": 9.0, "b": 1.0, "c": 1.0, "d": 1.0}, producers) == ["a", "d"]
    assert names({"a": 1.0, "b": 9.0, "c": 1.0, "d": 1.0}, producers) == ["b", "c", "d"]


def test_actions_that_were_not_executed_connect_but_do_not_show() -> None:
    assert names({"a": 1.0, "c": 1.0}, {"c": ["b"], "b": ["a"]}) == ["a", "c"]


def test_nothing_executed_has_no_path() -> None:
    assert names({}, {}) == []


def test_a_chain_of_ten_thousand_is_no_trouble() -> None:
    executed = {f"n{index}": 1.0 for index in range(10_000)}
    producers = {f"n{index}": [f"n{index - 1}"] for index in range(1, 10_000)}
    assert len(names(executed, producers)) == 10_000


def test_it_is_the_longest_of_all_chains_of_random_graphs() -> None:
    chance = random.Random(7)
    for _ in range(50):
        nodes = [f"n{index}" for index in range(9)]
        producers = {
            node: [other for other in nodes[:index] if chance.random() < 0.3] for index, node in enumerate(nodes)
        }
        executed = {node: float(chance.randrange(1, 50)) for node in nodes if chance.random() < 0.8}
        chains = [
            chain
            for size in range(1, len(nodes) + 1)
            for chain in itertools.combinations(nodes, size)
            if all(a in producers[b] for a, b in itertools.pairwise(chain))
        ]
        longest = max((sum(executed.get(node, 0.0) for node in chain) for chain in chains), default=0.0)
        assert sum(executed[name] for name in names(executed, producers)) == longest


def test_slack_is_what_an_action_could_take_longer() -> None:
    """By definition: an action that takes so much longer is on a longest chain, and with less it is not."""
    for seed in range(100):
        chance = random.Random(seed)
        count = chance.randrange(1, 15)
        producers = {f"n{i}": [f"n{j}" for j in range(i) if chance.random() < 0.3] for i in range(count)}
        seconds = {f"n{i}": float(chance.randrange(1, 9)) for i in range(count) if chance.random() < 0.8}
        longest = length_of(seconds, producers)
        told = Chains({name: step(name, taken) for name, taken in seconds.items()}, producers.__getitem__).slacks()
        assert [slack.seconds for slack in told] == sorted(slack.seconds for slack in told)
        by_name = {slack.identifier: slack.seconds for slack in told}
        for name in seconds:
            slack = by_name.get(name, 0.0)
            assert length_of(seconds | {name: seconds[name] + slack}, producers) == longest
            assert length_of(seconds | {name: seconds[name] + slack + 1}, producers) == longest + 1


def length_of(seconds: dict[str, float], producers: dict[str, list[str]]) -> float:
    total: dict[str, float] = {}
    for name, needs in producers.items():
        total[name] = seconds.get(name, 0.0) + max((total[need] for need in needs), default=0.0)
    return max((total[name] for name in seconds), default=0.0)
