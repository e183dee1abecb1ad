"""What the files of sentence-transformers beside a model say of it: which vector stands for a text.

`modules.json` lists the steps from a text to its vector, each with the folder of its own `config.json`;
`sentence_bert_config.json` has the length that texts are cut at, and whether they are lower-cased before.
"""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

from mlcbuild.compiler.models.config import ConfigReader, parse_document, read_document
from mlcbuild.compiler.models.embedding import FIELD, PoolingStrategy
from mlcbuild.errors import StageError

_MODULES = "modules.json"
_TRANSFORMER = "sentence_bert_config.json"
# The fields that say which vector is taken, and their words in newer files.
_POOLING = {
    "pooling_mode_cls_token": PoolingStrategy.CLS,
    "pooling_mode_mean_tokens": PoolingStrategy.MEAN,
    "pooling_mode_lasttoken": PoolingStrategy.LAST,
}
_WORDS = {"cls": PoolingStrategy.CLS, "mean": PoolingStrategy.MEAN, "lasttoken": PoolingStrategy.LAST}


def embedding_fields(directory: Path) -> dict[str, object]:
    """The fields that the files of a Hugging Face directory add to its `config.json`: none, or `embedding_metadata`.

    Raises StageError for a step that is not computed, and for files that do not say what a step does.
    """
    path = directory / _MODULES
    if not path.is_file():
        return {}
    kinds = list[str]()
    pooling = None
    for reader in _modules(path):
        kind = reader.string("type").rpartition(".")[2]
        kinds.append(kind)
        if kind == "Pooling":
            pooling = _pooling(directory / _folder(reader) / "config.json")
        elif kind not in ("Transformer", "Normalize"):
            raise StageError(
                f"{path}: the step {kind} is not supported", advice=("known: Transformer, Pooling, Normalize",)
            )
    if pooling is None or kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise StageError(f"{path}: the steps are {', '.join(kinds)}; they have to be Transformer, Pooling, Normalize")
    document: dict[str, object] = {"pooling_strategy": pooling.value, "normalize": kinds[-1] == "Normalize"}
    transformer = _transformer(directory)
    if transformer.has("max_seq_length"):
        document["max_seq_length"] = transformer.integer("max_seq_length", low=1, high=1 << 27)
    return {FIELD: document}


def refuse_other_case(directory: Path, *, lowercases: bool) -> None:
    """Raises StageError where texts are lower-cased before they reach the tokenizer, and the tokenizer does not do it
    itself (`lowercases`): an engine hands it texts as they are."""
    if not (directory / _MODULES).is_file():
        return
    transformer = _transformer(directory)
    if transformer.boolean("do_lower_case", default=False) and not lowercases:
        raise transformer.fail(
            "do_lower_case",
            "is true, and the tokenizer does not lower-case texts itself, so an engine would not",
            advice=('add {"type": "Lowercase"} to the normalizer in tokenizer.json',),
        )


def _transformer(directory: Path) -> ConfigReader:
    """The settings of the step Transformer; without its file, none."""
    path = directory / _TRANSFORMER
    return ConfigReader(read_document(path) if path.is_file() else {}, str(path))


def _folder(module: ConfigReader) -> PurePosixPath:
    """A step's folder. Raises StageError for one outside of the model's."""
    folder = PurePosixPath(module.string("path"))
    if folder.is_absolute() or ".." in folder.parts:
        raise module.fail("path", f'is "{folder}"; it has to be a folder inside of the model\'s')
    return folder


def _modules(path: Path) -> list[ConfigReader]:
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise StageError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(found, list) or not all(isinstance(module, dict) for module in found):
        raise StageError(f"{path} does not hold a list of modules")
    return [ConfigReader(module, f"{path}, module {number}") for number, module in enumerate(found)]


def _pooling(path: Path) -> PoolingStrategy:
    if not path.is_file():
        raise StageError(
            f"{path} is missing; it says which vector stands for a text",
            advice=("fetch it beside modules.json: a repository's `files` have to name it",),
        )
    reader = ConfigReader(parse_document(path.read_bytes(), where=str(path)), str(path))
    if isinstance(reader.value("pooling_mode"), str):
        modes = [reader.string("pooling_mode")]
        if modes[0] in _WORDS:
            return _WORDS[modes[0]]
    else:
        names = [name for name in reader.document if name.startswith("pooling_mode_")]
        modes = [name for name in names if reader.boolean(name, default=False)]
        if len(modes) == 1 and modes[0] in _POOLING:
            return _POOLING[modes[0]]
    raise StageError(
        f"{path}: pooling by {' and '.join(modes) or 'nothing'} is not supported",
        advice=(f"known: one of {', '.join(_POOLING)}",),
    )
