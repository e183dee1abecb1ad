"""DescribeGGUF: what a GGUF file of a model begins with: its metadata, its vocabulary, and where its tensors come from.

Reads `model` and `parameters` (model.json, parameters.json of ConfigureModel), `config` (config.json) and the directory
`tokenizer`. Writes `header` (`formats.gguf.header`). The families, which know the metadata of their architectures, are
given as plug-ins.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mlcbuild.compiler.formats.gguf.described_model import describe
from mlcbuild.compiler.formats.gguf.header import FactorTensor, GGUFHeader, key, keys, write_header
from mlcbuild.compiler.formats.gguf.vocabulary import vocabulary_keys
from mlcbuild.compiler.models.checkpoints.parameters import read_parameters
from mlcbuild.compiler.models.config import read_document
from mlcbuild.compiler.models.description import read_model
from mlcbuild.compiler.models.resolving import AnyFamily


def run(
    *, model: Path, parameters: Path, config: Path, tokenizer: Path, header: Path, families: Sequence[AnyFamily]
) -> None:
    """Raises StageError for a model, and for a tokenizer, of which a GGUF file cannot say everything."""
    description, document = read_model(model), read_document(config)
    found = describe(description, read_parameters(parameters), document, families)
    written = GGUFHeader(
        architecture=found.architecture,
        keys=(
            key("general.type", "model"),
            key("general.quantization_version", 2),
            *keys(found.architecture, tuple(found.metadata.values.items())),
            *vocabulary_keys(tokenizer, size=description.vocab_size, config=document),
        ),
        factors=tuple(FactorTensor(name=name, numbers=numbers) for name, numbers in found.metadata.factors.items()),
        as_read=found.as_read,
    )
    write_header(written, header)
