"""A package of a tiny model, made by the stages themselves."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlcbuild.compiler.stages import gen_config, import_config, import_weights, index_weights, quantize
from mlcbuild.rules.families import families
from tests.compiler import schemes
from tests.compiler.pipeline import CPU_TARGET, compile_library
from tests.compiler.resolving import readers, write_configured, write_resolved


def build_package(
    source: Path,
    directory: Path,
    *,
    quantization: str = "q0f32",
    overrides: Mapping[str, object] | None = None,
    encode: str = "raw",
    kernel_store: Path | None = None,
    target: Mapping[str, object] = CPU_TARGET,
    architectures: Sequence[str] | None = None,
) -> Path:
    """Build the model of a GGUF file or directory into `directory`/package, and return that path. `kernel_store` and
    `architectures` are those of `compile_library`.
    """
    package, work = directory / "package", directory / "work"
    package.mkdir(parents=True)
    work.mkdir()
    config, tokenizer = work / "config.json", work / "tokenizer"
    import_config.run(
        readers=readers(),
        source=source,
        config=config,
        tokenizer=tokenizer,
        vocabulary=work / "vocabulary.json",
        licenses=work / "licenses",
        families=families(),
    )
    write_resolved(work, json.loads(config.read_text()))
    write_configured(work, quantization, overrides)
    parameters = work / "parameters.json"
    import_weights.run(
        readers=readers(), source=source, parameters=parameters, manifest=work / "manifest.json", shards=work / "shards"
    )
    scheme = schemes.scheme(quantization)
    records = []
    for number, shard in enumerate(json.loads((work / "manifest.json").read_text())["shards"]):
        records.append(work / f"records_{number}.json")
        quantize.run(
            shard=work / "shards" / shard["file"],
            parameters=parameters,
            shard_out=package / f"params_shard_{number}.bin",
            records=records[-1],
            scheme=scheme,
            encoder=schemes.encoder_class(scheme),
            index=number,
            encode=encode,
        )
    index_weights.run(
        records=tuple(records),
        parameters=parameters,
        index=package / "tensor-cache.json",
        scheme=scheme,
        encode=encode,
    )
    gen_config.run(
        model=work / "configured.json",
        config=config,
        tokenizer=tokenizer,
        chat_config=package / "mlc-chat-config.json",
        tokenizer_files=package,
        scheme=scheme,
    )
    library = compile_library(
        json.loads(config.read_text()),
        quantization,
        target,
        work / "library",
        overrides=overrides,
        kernel_store=kernel_store,
        architectures=architectures,
    )
    shutil.copyfile(library, package / "lib.so")
    return package
