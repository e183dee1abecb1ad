"""ImportConfig: a model's configuration and tokenizer in Hugging Face's form, from whatever its source is.

Reads `source` (a GGUF file, or a directory with one, or a Hugging Face directory). Writes `config` (config.json, which
ResolveModel checks), the directory `tokenizer` (tokenizer.json, tokenizer_config.json and their like), `vocabulary`
(vocabulary.json, see `tokenizer.vocabulary`), and the directory `licenses` (what the source says of its licence, and
LICENSE and its like). Of the weights only tensors that should equal one another are read. The families, which know
them and the metadata of GGUF files, and the readers of quantized checkpoints are given as plug-ins.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from mlcbuild.compiler.models.config import read_document
from mlcbuild.compiler.models.configuration.sentence_transformers import embedding_fields, refuse_other_case
from mlcbuild.compiler.models.gguf.architecture import gguf_architecture
from mlcbuild.compiler.models.license import stated_in_directory, stated_in_metadata, write_licenses
from mlcbuild.compiler.models.resolving import AnyFamily, resolve_config
from mlcbuild.compiler.placeholder_files import HEAD_BYTES, refuse_placeholder
from mlcbuild.compiler.tokenizer.converted import converted_files
from mlcbuild.compiler.tokenizer.from_gguf import tokenizer_files
from mlcbuild.compiler.tokenizer.vocabulary import lowercases, read_tokenizer, vocabulary_of, write_vocabulary
from mlcbuild.compiler.weights.adapter import adapter_error
from mlcbuild.compiler.weights.checkpoint import Checkpoint
from mlcbuild.compiler.weights.gguf_file import GGUFFile
from mlcbuild.compiler.weights.quantized_source import FormatReader, with_quantized
from mlcbuild.compiler.weights.source import gguf_files, open_source
from mlcbuild.errors import StageError

# What belongs to a tokenizer in a Hugging Face directory; generation_config.json has its sampling defaults.
TOKENIZER_FILES: tuple[str, ...] = (
    "tokenizer.model",
    "tokenizer.json",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "generation_config.json",
)


def run(
    *,
    source: Path,
    config: Path,
    tokenizer: Path,
    vocabulary: Path,
    licenses: Path,
    families: Sequence[AnyFamily],
    readers: Sequence[FormatReader],
) -> None:
    """Raises StageError for a source without a configuration or tokenizer, for a tokenizer that cannot be read, and for
    a GGUF file that is damaged or of no family's architecture."""
    tokenizer.mkdir(parents=True, exist_ok=True)
    if source.suffix == ".json" and source.is_file():
        source = source.parent  # A folder that holds this file alone arrives as the file.
    if gguf := gguf_files(source):
        _import_gguf(gguf, config, tokenizer, licenses, families)
    elif source.is_dir():
        _import_directory(source, config, tokenizer, families, readers)
        write_licenses(stated_in_directory(source), source, licenses)
    elif source.exists():
        raise StageError(
            f"{source} holds weights alone; a model needs its configuration and tokenizer too",
            advice=("give the directory that holds it beside config.json and tokenizer.json, or a GGUF file",),
        )
    else:
        raise StageError(f"the model {source} does not exist")
    read = read_tokenizer(tokenizer / "tokenizer.json")
    if not gguf:
        refuse_other_case(source, lowercases=lowercases(read))
    if read.truncation is not None or read.padding is not None:
        # How texts were cut and filled up in training: transformers asks its callers instead, engines do as it says.
        read.no_truncation()
        read.no_padding()
        (tokenizer / "tokenizer.json").write_text(read.to_str() + "\n", encoding="utf-8")
    write_vocabulary(vocabulary_of(read), vocabulary)


def _import_gguf(
    paths: Sequence[Path], config: Path, tokenizer: Path, licenses: Path, families: Sequence[AnyFamily]
) -> None:
    file = GGUFFile(*paths)
    try:
        architecture = gguf_architecture(file, families)
        config.write_text(json.dumps(architecture.config(file), indent=2) + "\n", encoding="utf-8")
        for name, text in tokenizer_files(file, architecture.cuts).items():
            (tokenizer / name).write_text(text, encoding="utf-8")
        stated = stated_in_metadata(file.metadata) or stated_in_directory(file.path.parent)
        write_licenses(stated, file.path.parent, licenses)
    finally:
        file.close()


def _import_directory(
    directory: Path, config: Path, tokenizer: Path, families: Sequence[AnyFamily], readers: Sequence[FormatReader]
) -> None:
    own = directory / "config.json"
    if not own.is_file():
        raise adapter_error(directory) or StageError(
            f"{directory} holds no config.json", advice=(f"it holds: {_names(directory)}",)
        )
    refuse_placeholder(_head(own), own)
    changed = dict[str, object]()
    if _has_own_head(directory, own, families, readers):
        print(f"{own} says that embeddings are tied, but the weights have a head of their own: they are not tied")
        changed["tie_word_embeddings"] = False
    changed |= embedding_fields(directory)
    if changed:
        document = {**read_document(own), **changed}
        config.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    else:
        shutil.copyfile(own, config)
    made = {} if (directory / "tokenizer.json").is_file() else converted_files(directory)
    if made is None:
        raise StageError(f"{directory} holds no tokenizer.json", advice=(f"it holds: {_names(directory)}",))
    for name in TOKENIZER_FILES:
        if (directory / name).is_file():
            refuse_placeholder(_head(directory / name), directory / name)
            shutil.copyfile(directory / name, tokenizer / name)
    for name, text in made.items():
        (tokenizer / name).write_text(text, encoding="utf-8")


def _has_own_head(directory: Path, own: Path, families: Sequence[AnyFamily], readers: Sequence[FormatReader]) -> bool:
    """Whether the weights have a head with numbers of its own, though config.json ties it to the embedding.

    Transformers does not tie them then. Errors in config.json or the weights are left to the stages that read all of
    them.
    """
    try:
        formats = [reader.format for reader in readers]
        _, parameters = resolve_config(own.read_bytes(), families, formats, where=str(own))
        if not parameters.tied:
            return False
        source = open_source(directory)
    except StageError:
        return False
    try:
        weights = with_quantized(source, parameters.quantized, readers)
        return bool(Checkpoint(weights, parameters, where=str(directory)).untied)
    except StageError:
        return False
    finally:
        source.close()


def _head(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(HEAD_BYTES)


def _names(directory: Path) -> str:
    names = sorted(path.name for path in directory.iterdir())
    return ", ".join(names[:6]) + (", …" if len(names) > 6 else "") if names else "nothing"
