"""PlanSearch: announces a SearchScales for each group of matrices that are searched together.

Reads `parameters` (parameters.json), `imported` (the manifest of ImportWeights: which tensors each shard has) and
`index` (statistics.json of MergeStatistics). Writes `groups`, a folder with a `statistics.json` for each group that has
its inputs alone, and `manifest`: for each group its `index`, the files of its `statistics`, and the `shards` in which
its matrices lie. It reads no weights and no sums, so a tensor that changes leaves it as it is.
"""

from __future__ import annotations

from pathlib import Path

from mlcbuild.compiler import json_values
from mlcbuild.compiler.calibration.search_groups import search_groups
from mlcbuild.compiler.calibration.statistics import VERSION, StatisticsIndex
from mlcbuild.compiler.manifest import read_manifest, write_manifest
from mlcbuild.compiler.models.checkpoints.parameters import read_parameters


def run(*, parameters: Path, imported: Path, index: Path, groups: Path, manifest: Path) -> None:
    """Raises StageError for files of other forms."""
    listed = read_parameters(parameters)
    sources = {one.name: {tensor.name for tensor in one.sources} for one in listed.parameters}
    shards = read_manifest(imported.read_bytes())["shards"]
    observed = json_values.read(StatisticsIndex, index, version=VERSION)
    groups.mkdir(parents=True, exist_ok=True)
    entries = []
    for number, inputs in enumerate(search_groups(listed, observed.inputs)):
        name = f"{number:05d}.json"
        json_values.write(StatisticsIndex(tokens=observed.tokens, inputs=inputs), groups / name, version=VERSION)
        needed = {tensor for one in inputs for matrix in one.matrices for tensor in sources[matrix]}
        entries.append(
            {
                "index": name,
                "statistics": [one.file for one in inputs],
                "shards": [
                    {"number": place, "file": shard["file"]}
                    for place, shard in enumerate(shards)
                    if not needed.isdisjoint(shard["tensors"])
                ],
            }
        )
    write_manifest(manifest, {"groups": entries})
