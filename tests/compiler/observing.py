"""A model that is observed: its library by the whole pipeline, and the statistics of samples, in one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlcbuild.compiler.calibration.samples import SampleShard, Tokens, write_samples
from mlcbuild.compiler.calibration.statistics import Statistics
from mlcbuild.compiler.stages import (
    export_observed,
    import_weights,
    merge_statistics,
    observe,
    phase0,
    phase1,
    phase2,
    phase3,
)
from tests.compiler import schemes
from tests.compiler.pipeline import CPU_TARGET, backend_passes, finish_library
from tests.compiler.quantized_checkpoints import write
from tests.compiler.resolving import model_builders, readers, write_configured, write_resolved
from tests.compiler.tiny_models import Array


def observed_model(
    config: Mapping[str, Any],
    tensors: Mapping[str, Array],
    directory: Path,
    *,
    target: Mapping[str, object] = CPU_TARGET,
    kernel_store: Path | None = None,
    architectures: Sequence[str] | None = None,
) -> Path:
    """Compile a model to be observed, and import its weights, into a folder for `statistics_of`. `architectures` are
    those of `compile_library`."""
    directory.mkdir(parents=True, exist_ok=True)
    at = directory.joinpath
    write_resolved(directory, config)
    import_weights.run(
        source=write(at("model.safetensors"), tensors),
        parameters=at("parameters.json"),
        manifest=at("imported.json"),
        shards=at("shards"),
        readers=readers(),
    )
    export_observed.run(
        model=at("model.json"),
        module=at("export.json"),
        metadata=at("metadata.export.json"),
        observation=at("observation.json"),
        models=model_builders(),
        scheme=schemes.scheme("q0f32"),
    )
    write_configured(directory, "q0f32")
    given = dict(target)
    phase0.run(
        module=at("export.json"),
        metadata=at("metadata.export.json"),
        window=at("window.json"),
        module_out=at("phase0.json"),
        metadata_out=at("metadata.phase0.json"),
        backend=backend_passes(target, 0),
        target=given,
    )
    for number, stage in enumerate((phase1.run, phase2.run, phase3.run), start=1):
        stage(
            module=at(f"phase{number - 1}.json"),
            module_out=at(f"phase{number}.json"),
            backend=backend_passes(target, number),
            target=given,
        )
    finish_library(target, directory, opt="O1", kernel_store=kernel_store, architectures=architectures)
    return directory


def statistics_of(directory: Path, shards: Sequence[Sequence[Tokens]], *, to: Path, threads: int = 1) -> Statistics:
    """The merged statistics of shards of samples."""
    to.mkdir(parents=True)
    observed = []
    for number, samples in enumerate(shards):
        write_samples(SampleShard(samples=tuple(samples)), to / f"samples_{number}.json")
        observed.append(to / f"observed_{number}")
        observe.run(
            samples=to / f"samples_{number}.json",
            shards=sorted((directory / "shards").iterdir()),
            parameters=directory / "parameters.json",
            library=directory / "lib.so",
            observation=directory / "observation.json",
            statistics=observed[-1],
            hints={"threads": threads},
        )
    merge_statistics.run(observed=observed, statistics=to / "statistics")
    return Statistics(to / "statistics")
