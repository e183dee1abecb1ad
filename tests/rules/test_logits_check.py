"""A check of logits: what its runs ask for, and what its comparison says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mlcbuild.compiler.stages import compare_logits
from mlcbuild.engine.action import CachePolicy
from mlcbuild.errors import StageError, WorkspaceErrors
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

[[logits_check]]
name = "check"
package = ":package-gpu"
reference = ":package-cpu"
prompts = ["hello"]
tolerance = %s
""".replace("%s", "0" * 64, 1)


def test_a_run_asks_for_a_gpu_of_its_architecture_and_the_reference_for_none(tmp_path: Path) -> None:
    analysis = analysed(write(tmp_path, {"p/BUILD.toml": BUILD % "0.5"}), "//p:check")
    run, reference = action(analysis, "RunLogits"), action(analysis, "RunReference")
    assert run.requirements.gpus == 1
    assert run.requirements.labels == (("arch", "sm_90"),)
    assert reference.requirements.gpus == 0
    assert run.cache is reference.cache is CachePolicy.NONE
    assert action(analysis, "CompareLogits").cache is CachePolicy.ALL
    assert not [each for each in analysis.actions if each.requirements.gpus and each.mnemonic != "RunLogits"]


@pytest.mark.parametrize(
    ("tolerance", "said"),
    [
        ("0", "above 0"),
        ("-1.5", "above 0"),
        ("inf", "must be a number, not the float inf"),
        ('"x"', "must be a number"),
    ],
)
def test_what_is_no_tolerance_is_refused_at_its_place(tmp_path: Path, tolerance: str, said: str) -> None:
    with pytest.raises(WorkspaceErrors, match=said) as told:
        analysed(write(tmp_path, {"p/BUILD.toml": BUILD % tolerance}), "//p:check")
    line = (tmp_path / "p/BUILD.toml").read_text().splitlines().index(f"tolerance = {tolerance}") + 1
    assert f"p/BUILD.toml:{line}:" in str(told.value)


def compared(tmp_path: Path, reference: object, checked: object, *, tolerance: float = 0.5) -> dict[str, object]:
    for name, numbers in (("reference", reference), ("checked", checked)):
        np.save(tmp_path / f"{name}.npy", np.asarray(numbers, np.float32))
    (tmp_path / "tokens.json").write_text(json.dumps({"prompts": [[1], [2]], "chosen": [[0], [1, 1]]}))
    compare_logits.run(
        reference=tmp_path / "reference.npy",
        checked=tmp_path / "checked.npy",
        tokens=tmp_path / "tokens.json",
        report=tmp_path / "report.json",
        tolerance=tolerance,
    )
    report: dict[str, object] = json.loads((tmp_path / "report.json").read_text())
    return report


def test_a_comparison_reports_the_largest_error_and_other_choices(tmp_path: Path) -> None:
    report = compared(tmp_path, [[3, 1], [0, 2], [1, 1.25]], [[3, 1], [0, 2.25], [1.5, 1.25]])
    assert report == {
        "steps": 3,
        "largest_error": 0.5,
        "step": 2,
        "token": 0,
        "tolerance": 0.5,
        "largest_reference": 3.0,
        "other_choices": 1,
    }


def test_an_error_above_the_tolerance_fails_and_says_where(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"prompt 2, token 2: the logit of token 0 is 1.5000, and 1.0000") as told:
        compared(tmp_path, [[3, 1], [0, 2], [1, 1.25]], [[3, 1], [0, 2], [1.5, 1.25]], tolerance=0.4)
    assert "1 of 3 steps" in str(told.value)


@pytest.mark.parametrize("wrong", [[[1, 2]], [[np.nan, 1], [0, 2], [1, 1]]])
def test_logits_that_cannot_be_compared_fail(tmp_path: Path, wrong: object) -> None:
    with pytest.raises(StageError):
        compared(tmp_path, [[3, 1], [0, 2], [1, 1]], wrong)
