"""The attribute `opt`: levels alone, and no flags of libraries that no kernel calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcbuild.errors import WorkspaceErrors
from mlcbuild.rules.registry import load_rules
from mlcbuild.rules.repositories import repositories
from mlcbuild.workspace.loader import load
from tests.rules.model_workspaces import model_workspace

TARGET = '[[model_library]]\nname = "one"\nmodel = ":shape"\nquantization = "q4f16_1"\nplatform = ":v3"\n'


@pytest.mark.parametrize("flags", ["flashinfer=1", "cublas_gemm=1;flashinfer=1", "cutlass=1", "cudagraph=1"])
def test_flags_of_libraries_are_refused_at_load(tmp_path: Path, flags: str) -> None:
    root = model_workspace(tmp_path, f'{TARGET}opt = "{flags}"\n')
    schemas = {name: rule.schema for name, rule in load_rules(root, ()).items()}
    with pytest.raises(WorkspaceErrors) as caught:
        load(root, schemas, ["//models:one"], repositories=repositories())
    assert f'"{flags}"' in str(caught.value)
    assert "O0, O1, O2, O3" in str(caught.value)
