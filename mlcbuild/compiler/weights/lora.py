"""LoRA adapters as PEFT saves them, and the weights of a model with them merged in.

Form: `adapter_config.json` (peft's `LoraConfig`), and `adapter_model.safetensors` or `.bin`, whose tensors are named
`base_model.model.<module>.lora_A.weight` and the like. A module's weight W becomes W + s·B·A, where s is
`lora_alpha` / r, or / √r with `use_rslora`; with DoRA the rows of that are then scaled to magnitudes of the adapter's.
Modules that were trained as a whole (`modules_to_save`, biases) replace the model's. All of it is computed in float32.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mlcbuild.compiler.models.config import read_document
from mlcbuild.compiler.weights.source import WeightSource, open_adapter_file
from mlcbuild.compiler.weights.tensor import Array
from mlcbuild.errors import StageError

CONFIG = "adapter_config.json"
FILES = ("adapter_model.safetensors", "adapter_model.bin")
_MERGE_ELSEWHERE = "merge it with PEFT's merge_and_unload, and give the merged model as the source"
_ADVICE = ("an adapter is a folder that PEFT's save_pretrained wrote",)
_PREFIX = "base_model.model."
_PART = re.compile(
    r"(?P<module>.+)\.(?P<part>lora_A|lora_B|lora_embedding_A|lora_embedding_B|lora_magnitude_vector)"
    r"(\.default)?(\.weight)?"
)
# Fields that say how an adapter was trained or where it goes, and change nothing of what it is.
_WITHOUT_EFFECT = frozenset(
    (
        *("peft_type", "task_type", "auto_mapping", "peft_version", "base_model_name_or_path", "revision"),
        *("inference_mode", "r", "target_modules", "exclude_modules", "lora_alpha", "lora_dropout", "fan_in_fan_out"),
        *("bias", "use_rslora", "modules_to_save", "init_lora_weights", "layers_to_transform", "layers_pattern"),
        *("rank_pattern", "alpha_pattern", "megatron_core", "use_dora", "qalora_group_size", "runtime_config"),
        *("eva_config", "ensure_weight_tying", "loftq_config"),
    )
)
# Ways to begin that leave the model's own weights as they are.
_BEGINNINGS = (True, False, "gaussian", "orthogonal", "eva", None)
_ROWS_AT_ONCE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scaling:
    """How large a module's product is. `rank_pattern` and `alpha_pattern` name modules by the ends of their names, or
    by regular expressions for these."""

    rank: int
    alpha: float
    ranks: Mapping[str, float]
    alphas: Mapping[str, float]
    by_root: bool

    def rank_of(self, module: str) -> int:
        return int(_by_pattern(self.ranks, module, self.rank))

    def of(self, module: str) -> float:
        rank = self.rank_of(module)
        return _by_pattern(self.alphas, module, self.alpha) / (math.sqrt(rank) if self.by_root else rank)


class LoraAdapter:
    """One adapter of a folder; `share` is how much of it is added. Raises StageError for one that is damaged, or does
    what is not computed here."""

    def __init__(self, folder: Path, *, share: float = 1.0) -> None:
        self.folder, self._share = folder, share
        document = _document(folder)
        self._scaling = _scaling(folder, document)
        self._is_dora = document.get("use_dora") is True
        self._is_transposed = document.get("fan_in_fan_out") is True
        if self._is_dora and share != 1:
            raise StageError(f"{folder} scales rows (DoRA), so it cannot be added in part, here {share:g}")
        self._source = _open(folder)
        try:
            self._parts: dict[str, dict[str, str]] = {}  # by a tensor of the model: names in the file, by part
            self._replaced: dict[str, str] = {}
            for name in self._source.descriptions:
                self._add(name)
            for tensor, parts in self._parts.items():
                self._check_parts(tensor, parts)
            self._check_replaced()
        except BaseException:
            self._source.close()
            raise

    @property
    def tensors(self) -> frozenset[str]:
        """Tensors of the model that the adapter changes, by Hugging Face's names."""
        return frozenset(self._parts) | frozenset(self._replaced)

    def problem(self, tensor: str, shape: tuple[int, ...]) -> str:
        """What is wrong with the adapter for a tensor of that shape; "" if nothing is."""
        made = self._made_shape(tensor)
        fits = made == shape or (len(made) == 2 and tensor in self._parts and made[::-1] == shape)
        return "" if fits else f"{tensor} is {_shown(shape)}, and the adapter's is {_shown(made)}"

    def merged(self, tensor: str, numbers: Array) -> Array:
        """The numbers (float32) of a tensor with the adapter merged in; the array may be changed."""
        if tensor in self._replaced:
            numbers = self._read(self._replaced[tensor])
        if tensor not in self._parts:
            return numbers
        parts = self._parts[tensor]
        first, second = ("lora_A", "lora_B") if "lora_A" in parts else ("lora_embedding_A", "lora_embedding_B")
        down, up = self._read(parts[first]), self._read(parts[second])
        if self._swaps(tensor, numbers.shape):
            down, up = up.T, down.T
        factor = np.float32(self._scaling.of(_module(tensor)) * self._share)
        for begin in range(0, len(numbers), _ROWS_AT_ONCE):
            _add_product(numbers[begin : begin + _ROWS_AT_ONCE], up[begin : begin + _ROWS_AT_ONCE], down, factor)
        if "lora_magnitude_vector" in parts:
            axis = 0 if self._swaps(tensor, numbers.shape) else 1
            lengths = np.sqrt((numbers.astype(np.float64) ** 2).sum(axis=axis, keepdims=True))
            magnitudes = self._read(parts["lora_magnitude_vector"]).reshape(lengths.shape)
            with np.errstate(divide="ignore", invalid="ignore"):
                numbers *= (magnitudes / lengths).astype(np.float32)
        return numbers

    def close(self) -> None:
        self._source.close()

    def _add(self, name: str) -> None:
        if not name.startswith(_PREFIX):
            raise StageError(f"{self.folder} has the tensor {name}, which is not named as PEFT names them: {_PREFIX}…")
        inner = name.removeprefix(_PREFIX)
        if ".lora_B" in inner and inner.endswith(".bias"):
            raise StageError(f"{self.folder} has the tensor {name}: biases of LoRA (lora_bias) are not supported")
        if found := _PART.fullmatch(inner):
            self._parts.setdefault(f"{found['module']}.weight", {})[found["part"]] = name
        else:
            # PEFT saves an embedding that it changes beside the difference.
            self._replaced[inner.replace(".modules_to_save.default.", ".").replace(".base_layer.", ".")] = name

    def _check_parts(self, tensor: str, parts: Mapping[str, str]) -> None:
        names = set(parts) - {"lora_magnitude_vector"}
        if names not in ({"lora_A", "lora_B"}, {"lora_embedding_A", "lora_embedding_B"}):
            raise StageError(f"{self.folder} is damaged: of {tensor} it has {', '.join(sorted(parts))} alone")
        if self._is_dora != ("lora_magnitude_vector" in parts):
            raise StageError(
                f"{self.folder}: of {tensor} there {'are no' if self._is_dora else 'are'} magnitudes of DoRA"
            )
        if self._is_dora and "lora_embedding_A" in names:
            raise StageError(f"{self.folder} scales rows of the embedding {tensor} (DoRA), which is not supported")
        shapes = [self._source.descriptions[parts[part]].shape for part in sorted(names)]
        rank = self._scaling.rank_of(_module(tensor))
        if any(len(shape) != 2 for shape in shapes) or (shapes[0][0], shapes[1][1]) != (rank, rank):
            shown = " and ".join(map(_shown, shapes))
            raise StageError(f"{self.folder}: the matrices of {tensor} are {shown}, which are not of rank {rank}")

    def _check_replaced(self) -> None:
        for tensor, name in self._replaced.items():
            if tensor in self._parts:
                if self._source.descriptions[name].shape != self._made_shape(tensor):
                    raise StageError(f"{self.folder}: {tensor} is of another shape than what is added to it")
            elif self._share != 1:
                raise StageError(
                    f"{self.folder} replaces {tensor} as a whole, so it cannot be added in part, here {self._share:g}"
                )

    def _made_shape(self, tensor: str) -> tuple[int, ...]:
        if tensor not in self._parts:
            return self._source.descriptions[self._replaced[tensor]].shape
        parts = self._parts[tensor]
        is_embedding = "lora_embedding_A" in parts
        first, second = ("lora_embedding_A", "lora_embedding_B") if is_embedding else ("lora_A", "lora_B")
        made = (
            self._source.descriptions[parts[second]].shape[0],
            self._source.descriptions[parts[first]].shape[1],
        )
        return made[::-1] if is_embedding or self._is_transposed else made

    def _swaps(self, tensor: str, shape: tuple[int, ...]) -> bool:
        """Whether the model has the product's transpose: of embeddings, and as `fan_in_fan_out` says. PEFT corrects the
        field in memory where only the other way fits."""
        is_swapped = "lora_embedding_A" in self._parts[tensor] or self._is_transposed
        return is_swapped if self._made_shape(tensor) == shape else not is_swapped

    def _read(self, name: str) -> Array:
        return self._source.read(name).numbers("float32")


def _add_product(numbers: Array, up: Array, down: Array, factor: np.float32) -> None:
    """Add factor · up · down, one product of a column and a row after another: a library of matrix products has other
    roundings on another processor."""
    product = np.zeros(numbers.shape, np.float32)
    for index in range(len(down)):
        product += up[:, index, None] * down[index]
    product *= factor
    numbers += product


def _module(tensor: str) -> str:
    return tensor.removesuffix(".weight")


def _shown(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "scalar"


def _by_pattern(patterns: Mapping[str, float], module: str, default: float) -> float:
    return next((value for key, value in patterns.items() if re.match(rf"(.*\.)?({key})$", module)), default)


def _document(folder: Path) -> dict[str, object]:
    path = folder / CONFIG
    if not path.is_file():
        raise StageError(
            f"{folder} holds no {CONFIG}", advice=("an adapter is a folder that PEFT's save_pretrained wrote",)
        )
    document = read_document(path)
    kind = document.get("peft_type")
    if kind != "LORA":
        raise StageError(f'{path}: "peft_type" is {kind!r}; adapters of LORA can be merged')
    if document.get("target_parameters"):
        raise StageError(
            f'{path}: "target_parameters" is {document["target_parameters"]!r}: an adapter of the tensors of'
            " all experts together is not supported",
            advice=(_MERGE_ELSEWHERE, "adapters of the modules of single experts are merged here"),
        )
    for name, value in document.items():
        if name not in _WITHOUT_EFFECT and value:
            raise StageError(f'{path}: "{name}" is {value!r}, which is not supported')
    beginning = document.get("init_lora_weights", True)
    if beginning not in _BEGINNINGS:
        raise StageError(
            f'{path}: "init_lora_weights" is {beginning!r}: the adapter began by changing the weights that it is for',
            advice=(_MERGE_ELSEWHERE,),
        )
    return document


def _scaling(folder: Path, document: Mapping[str, object]) -> _Scaling:
    path = folder / CONFIG

    def number(name: str, value: object, least: float) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < 1e9:
            raise StageError(f'{path}: "{name}" is {value!r}; it has to be a number from {least:g} on')
        return float(value)

    def patterns(name: str, least: float) -> dict[str, float]:
        value = document.get(name) or {}
        if not isinstance(value, dict):
            raise StageError(f'{path}: "{name}" is {value!r}; it has to be an object of numbers by modules')
        for key in value:
            try:
                re.compile(key)
            except re.error as error:
                raise StageError(f'{path}: "{name}" has {key!r}, which is no regular expression: {error}') from None
        return {key: number(name, each, least) for key, each in value.items()}

    return _Scaling(
        rank=int(number("r", document.get("r", 8), 1)),
        alpha=number("lora_alpha", document.get("lora_alpha", 8), -1e9),
        ranks=patterns("rank_pattern", 1),
        alphas=patterns("alpha_pattern", -1e9),
        by_root=document.get("use_rslora") is True,
    )


def _open(folder: Path) -> WeightSource:
    for name in FILES:
        if (folder / name).is_file():
            return open_adapter_file(folder / name)
    raise StageError(
        f"{folder} holds no {FILES[0]}", advice=("an adapter is a folder that PEFT's save_pretrained wrote",)
    )
