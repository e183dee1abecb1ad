"""Test rules: what their actions ask for, what a build makes of them, and the mistakes that are told at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcbuild.cli.build.targets import targets_of
from mlcbuild.engine.action import Action, CachePolicy, DerivedArtifact
from mlcbuild.errors import WorkspaceErrors
from mlcbuild.rules.providers import TestInfo
from tests.rules.world import action, analysed, write

BUILD = """\
[[local_file]]
name = "weights"
path = "/nowhere/weights.gguf"
sha256 = "%s"

[[model]]
name = "model"
source = ":weights"

[[platform]]
name = "cpu"
kind = "cpu"
cpu = "x86-64-v2"

[[platform]]
name = "gpu"
kind = "cuda"
arch = ["sm_90"]

[[model_package]]
name = "package-{platform}"
matrix = { platform = [":cpu", ":gpu"] }
model = ":model"
quantization = "q4f16_1"

""".replace("%s", "0" * 64)
LOGITS = """
[[logits_test]]
name = "test"
package = ":package-gpu"
reference = ":package-cpu"
prompts = ["hello"]
tolerance = 0.5
"""
PERPLEXITY = """
[[perplexity_test]]
name = "test"
package = ":package-cpu"
text = "text.txt"
max_perplexity = 20
"""
ANSWER = """
[[answer_test]]
name = "test"
package = ":package-cpu"
prompt = "hello"
expected = "world"
"""
SPEED = """
[[speed_test]]
name = "test"
package = ":package-cpu"
min_decode_tokens_per_second = 10
"""


def world(root: Path, target: str, *, text: str = "a text\n") -> Path:
    return write(root, {"p/BUILD.toml": BUILD + target, "p/text.txt": text})


def test_of(root: Path, target: str, mnemonic: str) -> Action:
    return action(analysed(world(root, target), "//p:test"), mnemonic)


test_of.__test__ = False  # type: ignore[attr-defined]  # a helper


def test_a_run_asks_for_a_gpu_of_its_architecture_and_the_reference_for_none(tmp_path: Path) -> None:
    analysis = analysed(world(tmp_path, LOGITS), "//p:test")
    run, reference = action(analysis, "LogitsTest"), action(analysis, "RunReference")
    assert run.is_test
    assert not reference.is_test
    assert run.requirements.gpus == 1
    assert run.requirements.labels == (("arch", "sm_90"),)
    assert reference.requirements.gpus == 0
    assert run.cache is reference.cache is CachePolicy.ALL
    assert not [each for each in analysis.actions if each.requirements.gpus and each.mnemonic != "LogitsTest"]


def test_a_build_makes_what_a_test_runs_and_leaves_the_test_alone(tmp_path: Path) -> None:
    analysis = analysed(world(tmp_path, LOGITS), "//p:test")
    (built,) = targets_of(analysis.requested, output="out")
    assert built.outputs == ()
    makers = {artifact.action for artifact in built.builds if isinstance(artifact, DerivedArtifact)}
    assert {"//p:package-gpu Link", "//p:package-cpu Link"} <= makers
    assert not any(maker.startswith("//p:test ") for maker in makers)
    (tested,) = targets_of(analysis.requested, output="out", runs_tests=True)
    assert [place for place, _ in tested.outputs] == ["test.json"]
    assert tested.builds == ()


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("", 300), ('size = "small"', 60), ('size = "enormous"', 3600), ('size = "small"\ntimeout = "10m"', 600)],
)
def test_the_size_is_the_time_limit_unless_there_is_another(tmp_path: Path, said: str, seconds: float) -> None:
    assert test_of(tmp_path, PERPLEXITY + said, "PerplexityTest").requirements.timeout_seconds == seconds


@pytest.mark.parametrize(
    ("target", "mnemonic", "tags", "policy"),
    [
        (ANSWER, "AnswerTest", [], CachePolicy.ALL),
        (ANSWER, "AnswerTest", ["local"], CachePolicy.LOCAL),
        (ANSWER, "AnswerTest", ["no-remote"], CachePolicy.LOCAL),
        (ANSWER, "AnswerTest", ["external"], CachePolicy.NONE),
        (ANSWER, "AnswerTest", ["no-cache"], CachePolicy.NONE),
        (SPEED, "SpeedTest", [], CachePolicy.LOCAL),
        (SPEED, "SpeedTest", ["external"], CachePolicy.NONE),
    ],
)
def test_tags_say_which_caches_keep_a_result(
    tmp_path: Path, target: str, mnemonic: str, tags: list[str], policy: CachePolicy
) -> None:
    assert test_of(tmp_path, f"{target}tags = {tags}", mnemonic).cache is policy


def test_a_speed_is_measured_alone_and_so_is_what_says_exclusive(tmp_path: Path) -> None:
    processors = {
        name: test_of(tmp_path / name, target, mnemonic).requirements.cpus
        for name, target, mnemonic in (
            ("speed", SPEED, "SpeedTest"),
            ("exclusive", f'{ANSWER}tags = ["exclusive"]', "AnswerTest"),
            ("two", f"{ANSWER}cpus = 2", "AnswerTest"),
        )
    }
    assert processors["two"] == 2
    assert processors["speed"] == processors["exclusive"] > 1000  # a machine gives all it has, and runs nothing beside


def test_a_bound_is_in_the_key_and_what_a_test_may_use_is_not(tmp_path: Path) -> None:
    plain, higher, patient = (
        test_of(tmp_path / str(number), PERPLEXITY.replace("20", bound) + more, "PerplexityTest")
        for number, (bound, more) in enumerate((("20", ""), ("30", ""), ("20", 'timeout = "1h"\ncpus = 2')))
    )
    assert plain.command == patient.command != higher.command
    assert plain.requirements != patient.requirements


def test_every_test_rule_provides_a_test(tmp_path: Path) -> None:
    for number, target in enumerate((LOGITS, PERPLEXITY, ANSWER, SPEED)):
        (found,) = analysed(world(tmp_path / str(number), target), "//p:test").requested
        info = found.provided(TestInfo)
        assert info is not None
        assert info.size == "medium"


@pytest.mark.parametrize(
    ("target", "old", "new", "said"),
    [
        (LOGITS, "tolerance = 0.5", "tolerance = 0", "above 0"),
        (LOGITS, "tolerance = 0.5", "tolerance = -1.5", "above 0"),
        (LOGITS, "tolerance = 0.5", "tolerance = inf", "must be a number, not the float inf"),
        (LOGITS, "tolerance = 0.5", 'tolerance = "x"', "must be a number"),
        (LOGITS, 'reference = ":package-cpu"', "", "no reference"),
        (LOGITS, 'prompts = ["hello"]', "", "no prompts"),
        (LOGITS, 'prompts = ["hello"]', 'reference_file = "text.txt"', "two references"),
        (LOGITS, 'reference = ":package-cpu"', 'reference_file = "text.txt"', "prompts is for a reference that is a"),
        (LOGITS, 'reference = ":package-cpu"', 'reference = ":model"', 'cannot be the "reference"'),
        (PERPLEXITY, "max_perplexity = 20", "max_perplexity = 1", "no perplexity is below 1"),
        (PERPLEXITY, "max_perplexity = 20", "window = 8\nstride = 9", "stride 9 is above window 8"),
        (PERPLEXITY, "max_perplexity = 20", "window = 1", "must be at least 2"),
        (PERPLEXITY, "max_perplexity = 20", 'size = "huge"', "small, medium, large, enormous"),
        (ANSWER, 'expected = "world"', 'expected = "("\nmatch = "regex"', "expected is no regular expression"),
        (ANSWER, 'expected = "world"', 'expected = ""', "must not be empty"),
        (ANSWER, 'expected = "world"', 'expected = "x"\nraw = true\nsystem = "s"', "needs the chat template"),
        (SPEED, "min_decode_tokens_per_second = 10", "", "no floor"),
        (SPEED, "tokens_per_second = 10", "tokens_per_second = 0", "no floor"),
        (SPEED, "tokens_per_second = 10", "tokens_per_second = -1", "above 0"),
    ],
)
def test_a_mistake_is_told_when_the_file_is_read(tmp_path: Path, target: str, old: str, new: str, said: str) -> None:
    assert old in target
    with pytest.raises(WorkspaceErrors, match=said) as told:
        analysed(world(tmp_path, target.replace(old, new)), "//p:test")
    assert "p/BUILD.toml:" in str(told.value)


@pytest.mark.parametrize(("text", "said"), [("", "is empty"), (" \n", "is empty")])
def test_a_text_that_is_empty_is_told_when_the_file_is_read(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(WorkspaceErrors, match=said):
        analysed(world(tmp_path, PERPLEXITY, text=text), "//p:test")


def test_a_text_that_is_not_utf_8_is_told_when_the_file_is_read(tmp_path: Path) -> None:
    root = world(tmp_path, PERPLEXITY)
    (root / "p/text.txt").write_bytes(b"abc\xff")
    with pytest.raises(WorkspaceErrors, match="is not UTF-8 text: byte 3"):
        analysed(root, "//p:test")
