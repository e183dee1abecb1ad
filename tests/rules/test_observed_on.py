"""A model may be observed on a device: what that takes, and that other keys stay as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcbuild.engine.action import Action
from mlcbuild.errors import WorkspaceErrors
from tests.rules.model_workspaces import CUDA_MANIFEST, model_workspace
from tests.rules.world import action, analysed

_GPU = '[[platform]]\nname = "gpu"\nkind = "cuda"\narch = ["sm_90a"]\n'
_TEXT = '[[calibration_text]]\nname = "text"\ntexts = ["text.txt"]\n'
_WEIGHTS = '[[quantized_weights]]\nname = "w"\nmodel = ":m"\nquantization = "q4f16_1"\ncalibration = ":text"\n'
_AUTO = _WEIGHTS.replace('"q4f16_1"', '"auto"\nbudget = "4.5 bits"')


def _actions(root: Path, *lines: str, targets: str = _WEIGHTS) -> dict[str, Action]:
    """All actions of `w`, those of one shard of the sample, one of weights and one kernel among them."""
    text = _TEXT + "".join(f"{line}\n" for line in lines)
    analysis = analysed(model_workspace(root, _GPU + text + targets, **{"models/text.txt": "a text"}), "//models:w")
    found = list(analysis.actions)
    manifests = {
        "SampleTexts": b'{"version": 1, "shards": [{"file": "shard_0.json", "samples": 1}]}',
        "ImportWeights": b'{"version": 1, "shards": [{"file": "shard_0.safetensors", "tensors": []}]}',
        "Partition": CUDA_MANIFEST,
    }
    for mnemonic, manifest in manifests.items():
        each = action(analysis, mnemonic)
        assert each.discoverer is not None
        found += each.discoverer(discovering=each.identifier, manifest=manifest).actions
    return {each.identifier.removeprefix("//models:w "): each for each in found}


def test_only_what_runs_the_model_asks_for_the_device(tmp_path: Path) -> None:
    found = _actions(tmp_path, 'observed_on = ":gpu"', targets=_AUTO)
    on_gpu = {each.mnemonic for each in found.values() if each.requirements.gpus}
    assert on_gpu == {"Observe", "MeasureSensitivity"}
    # The name that a machine says of its GPU has no letter.
    assert (found["Observe 0"].requirements.gpus, found["Observe 0"].requirements.labels) == (1, (("arch", "sm_90"),))
    assert any(each.mnemonic == "CompileDevice" and " sm_90a" in each.identifier for each in found.values())


def test_a_text_adds_to_what_the_platform_asks_for(tmp_path: Path) -> None:
    said = 'requirements = { cpus = 4, memory = "1GiB", gpus = 0.5, labels = { zone = "b" } }'
    requirements = _actions(tmp_path, 'observed_on = ":gpu"', said)["Observe 0"].requirements
    assert (requirements.cpus, requirements.memory_bytes, requirements.gpus) == (4, 1 << 30, 0.5)
    assert requirements.labels == (("arch", "sm_90"), ("zone", "b"))
    assert dict(requirements.execution_hints) == {"threads": 4}


def test_a_platform_that_is_the_default_by_another_name_changes_no_key(tmp_path: Path) -> None:
    default, named = _actions(tmp_path / "a"), _actions(tmp_path / "b", 'observed_on = ":v3"')
    assert {name: (each.command, each.inputs) for name, each in default.items()} == {
        name: (each.command, each.inputs) for name, each in named.items()
    }
    assert not any(each.requirements.gpus for each in default.values())


def test_a_platform_of_several_architectures_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceErrors, match="would depend on the machine: it is for GPUs of sm_80 and sm_90") as told:
        _actions(tmp_path, 'observed_on = "@platforms//:cuda"')
    assert "name a platform of one architecture" in str(told.value)
