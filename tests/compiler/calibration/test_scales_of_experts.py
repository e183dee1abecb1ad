"""Scales of a mixture's inputs: its experts are searched together, and each is changed alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from mlcbuild.compiler.calibration.made_parameters import expert_name, made
from mlcbuild.compiler.calibration.scales import Scaling, read_scales
from mlcbuild.compiler.calibration.statistics import ObservedInput, write_index, write_input
from mlcbuild.compiler.models.checkpoints.parameters import ParameterList, read_parameters, write_parameters
from mlcbuild.compiler.stages import apply_scales, quantize, search_scales
from mlcbuild.compiler.weights.imported_shard import ImportedShard
from tests.compiler import schemes
from tests.compiler.resolving import write_resolved
from tests.compiler.running import random_model, tensors_of
from tests.compiler.windowed_cases import WINDOWED

_GATE_UP, _DOWN, _UNSEEN = (f"model.layers.{name}.weight" for name in ("0.moe.e1_e3", "0.moe.e2", "2.moe.e2"))
_CONFIG = dict(WINDOWED["mixtral-window"].config)


def _write_statistics(folder: Path, listed: ParameterList) -> None:
    """Of inputs whose first channels are large. The experts of the last layer were chosen by no token."""
    folder.mkdir()
    random = np.random.default_rng(4)
    seen = []
    for number, one in enumerate(listed.smoothed):
        is_unseen = one.matrices[0] == _UNSEEN
        rows = random.standard_normal((0 if is_unseen else 200, one.columns)).astype(np.float32)
        rows[:, : one.columns // 8] *= 20
        write_input(
            folder / str(number),
            gram=rows.T @ rows,
            absolute_sum=np.abs(rows).sum(axis=0),
            maximum=np.abs(rows).max(axis=0, initial=0),
        )
        seen.append(ObservedInput(file=str(number), matrices=one.matrices, width=one.columns, rows=len(rows)))
    write_index(folder, tokens=200, inputs=seen)


def test_experts_are_searched_together_and_changed_alone(tmp_path: Path) -> None:
    write_resolved(tmp_path, _CONFIG)
    parameters, shard = tmp_path / "parameters.json", tmp_path / "shard.safetensors"
    listed, scheme = read_parameters(parameters), schemes.scheme("q4f16_1")
    tensors = tensors_of(random_model(_CONFIG))
    sources = {tensor.name: tensor for one in listed.parameters for tensor in one.sources}
    save_file({name: np.ascontiguousarray(schemes.tensor_of(tensors, one)) for name, one in sources.items()}, shard)
    _write_statistics(tmp_path / "statistics", listed)
    search_scales.run(
        shards=[shard],
        parameters=parameters,
        statistics=tmp_path / "statistics",
        scales=tmp_path / "scales",
        scheme=scheme,
        encoder=schemes.encoder_class(scheme),
    )
    found = read_scales(tmp_path / "scales")
    norm = next(one for one in listed.smoothed if _GATE_UP in one.matrices)
    assert (found.scales[norm.matrices[0]][: norm.channels // 8] > 1).all()
    assert _UNSEEN not in found.scales
    apply_scales.run(shard=shard, parameters=parameters, scales=tmp_path / "scales", calibrated=tmp_path / "calibrated")

    by_name = {one.name: one for one in listed.parameters}
    scaling, written = Scaling(found=found, smoothed=listed.smoothed), ImportedShard(tmp_path / "calibrated")
    source, norm_weight = ImportedShard(shard), norm.absorbed_by[0].parameter
    gain = source.read(norm_weight).numbers("float32") / found.scales[norm.matrices[0]]
    np.testing.assert_array_equal(written.read(norm_weight).data, gain)
    router = source.read(by_name[norm.matrices[0]].sources[0].name).data * found.scales[norm.matrices[0]]
    np.testing.assert_array_equal(written.read(norm.matrices[0]).data, router)
    gate_up = by_name[_GATE_UP]
    for number in (0, _CONFIG["num_local_experts"] - 1):
        gate, up = (source.read(one.name).data for one in gate_up.sources[2 * number : 2 * number + 2])
        lower = source.read(by_name[_DOWN].sources[number].name).data
        inner = found.scales[_DOWN]
        whole = np.concatenate([gate, up / inner[:, np.newaxis]]) * found.scales[norm.matrices[0]]
        made_gate_up = written.read(expert_name(gate_up.name, number)).data
        clipping = found.clipping[gate_up.name]
        unclipped = np.repeat(clipping.fractions[number] == 20, clipping.group_size, axis=1)
        np.testing.assert_allclose(made_gate_up[unclipped], whole[unclipped], rtol=1e-6)
        assert (np.abs(made_gate_up) <= np.abs(whole) * 1.000001).all()
        np.testing.assert_array_equal(
            written.read(expert_name(_DOWN, number)).data,
            scaling.changed(by_name[_DOWN], lower, number),
        )

    write_parameters(made(listed), tmp_path / "made.json")
    quantize.run(
        shard=tmp_path / "calibrated",
        parameters=tmp_path / "made.json",
        shard_out=tmp_path / "out.bin",
        records=tmp_path / "records.json",
        scheme=scheme,
        encoder=schemes.encoder_class(scheme),
        index=0,
    )
