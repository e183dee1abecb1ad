"""What a model family is: the one interface that every folder in `compiler/families/` has.

A family is two modules, found by listing the folder:

- `family.py` exports `FAMILY`, a `Family`: which models are of it, and what it makes of a `config.json` and of a GGUF
  file's metadata. It imports neither tvm nor NumPy. ResolveModel and ImportConfig are given it.
- `model.py` exports `MODEL`, a `models.compilable.ModelBuilder`: the model on TVM's `relax.frontend.nn`. Export is
  given it.

No other stage knows a family: what they need is in `model.json` (`models.description`) and `parameters.json`
(`checkpoints.parameters`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from mlcbuild.compiler.models.checkpoints.parameters import ParameterList
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.description import Layers, ModelDescription
from mlcbuild.compiler.models.embedding import EmbeddingMetadata
from mlcbuild.compiler.models.sizes import ContextLimits

if TYPE_CHECKING:  # Whoever calls a family with a file has imported it; the keys of other stages need not count it.
    from mlcbuild.compiler.models.gguf.written import GGUFMetadata, WrittenModel
    from mlcbuild.compiler.tokenizer.cuts import Cut
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

Configuration = TypeVar("Configuration")


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyModel(Generic[Configuration]):
    """What a family makes of one `config.json`.

    `configuration` is a frozen dataclass that `compiler.json_values` can write: all that the family's `model.py` needs,
    and no size that a library may override. `chat_config` is the object `model_config` of an `mlc-chat-config.json`, in
    its order; a name of `LibrarySizes` stands where that size goes, with any value. `embedding` is how hidden states
    become vectors of texts, if the `config.json` does not say: a family whose models have no other use has it.
    `kv_state_kind` is for a model that keeps another kind than its family's.
    """

    configuration: Configuration
    vocab_size: int
    layers: Layers
    limits: ContextLimits
    chat_config: Mapping[str, object]
    parameters: ParameterList
    embedding: EmbeddingMetadata | None = None
    kv_state_kind: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GGUFArchitecture:
    """How GGUF files with one value of `general.architecture` are read and written.

    `config` makes a `config.json` of the metadata; it raises StageError for what the family cannot compute. `cuts` are
    values of `tokenizer.ggml.pre` that llama.cpp does not know (`tokenizer.cuts.CUTS` has those that it does).
    `metadata` is the inverse, for files that are written; None for an architecture of decoders that has no keys but
    those of all (`gguf.writing.decoder_metadata`).
    """

    config: Callable[[GGUFFile], dict[str, object]]
    cuts: Mapping[str, Cut] = field(default_factory=dict)
    metadata: Callable[[WrittenModel], GGUFMetadata] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Family(Generic[Configuration]):
    """One family. `name` is its folder's, `models` says in a few words which models it has.

    `resolve` checks a `config.json` whose `model_type` is one of `model_types`; it raises StageError naming the field
    that is missing, out of range or not supported. `configuration` is the class that it makes. `gguf` has the
    architectures of GGUF files by name. `gguf_names` are the architectures that files are written with, by model type,
    where that is not the only one of `gguf`; a function says it of models that differ. `kv_state_kind` is what a
    sequence keeps between calls, by MLC-LLM's words for a library's metadata: `kv_cache`, `rnn_state`, `hybrid` or
    `none`; a backend has kernels for some of them.
    `quantized_checkpoints` are the values of `quant_method` in a `quantization_config` whose tensors are known by their
    names alone.
    """

    name: str
    models: str
    model_types: tuple[str, ...]
    configuration: type[Configuration]
    resolve: Callable[[ConfigReader], FamilyModel[Configuration]]
    gguf: Mapping[str, GGUFArchitecture] = field(default_factory=dict)
    gguf_names: Mapping[str, str | Callable[[ModelDescription], str]] = field(default_factory=dict)
    kv_state_kind: str = "kv_cache"
    quantized_checkpoints: tuple[str, ...] = ()
