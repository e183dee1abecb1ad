"""How entry functions are exported: values of `$` in what `nn.Module.export_tvm` takes as its specification."""

from __future__ import annotations

WITH_PARAMETERS = {"param_mode": "packed", "effect_mode": "none"}
WITHOUT_PARAMETERS = {"param_mode": "none", "effect_mode": "none"}
