"""What a measurement takes of a machine."""

from __future__ import annotations

import dataclasses

import pytest

from mlcbuild.cli.tune.building import candidates_of
from mlcbuild.cli.tune.plan import Trial
from mlcbuild.engine.action import MORE_CPUS_THAN_ANY, ExecutionRequirements
from mlcbuild.rules.backend import PlatformInfo
from tests.cli.tunable_kernels import LIBRARY, kernel

TARGET = {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "x86-64-v2"}


class OnGpu(PlatformInfo):
    @property
    def run_requirements(self) -> ExecutionRequirements:
        return ExecutionRequirements(gpus=1)


@pytest.mark.parametrize(
    ("gpus", "alone", "alone_on_it"), [(0, True, True), (0, False, True), (1, True, True), (1, False, False)]
)
def test_kernels_for_processors_are_measured_alone_on_their_machine(gpus: int, alone: bool, alone_on_it: bool) -> None:
    """A GPU's, on a cluster, beside actions that compile."""
    platform = (OnGpu if gpus else PlatformInfo)(kind="cpu", target=TARGET)
    library = dataclasses.replace(LIBRARY, platform=platform)
    tuned = dataclasses.replace(kernel(1, 1024), library=library)
    candidate, untuned = candidates_of(Trial(kernel=tuned, number=1))
    measurement = library.measurement(
        tuned.name, candidate, untuned, number=1, sizes=tuned.listed.sizes, seconds=1.0, alone=alone
    )
    assert (measurement.requirements.cpus >= MORE_CPUS_THAN_ANY) is alone_on_it
    assert measurement.requirements.gpus == gpus
