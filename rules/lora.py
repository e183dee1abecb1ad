"""LoRA adapters of a model: the attributes that name them, and their files."""

from __future__ import annotations

from mlcbuild.engine.action import Artifact
from mlcbuild.rules.providers import FilesInfo, LoraInfo
from mlcbuild.rules.rule import RuleContext
from mlcbuild.workspace.label import LabelError, read_label
from mlcbuild.workspace.schema import Attribute, AttributeKind

_CONFIG = "adapter_config.json"
_FILES = (_CONFIG, "adapter_model.safetensors", "adapter_model.bin")

LORA = Attribute(
    name="lora",
    kind=AttributeKind.LABEL_LIST,
    allow_files=True,
    doc="LoRA adapters that are merged into the weights, in this order: folders that PEFT's save_pretrained wrote "
    "(adapter_config.json, adapter_model.safetensors), or targets with such files.",
)
LORA_SHARES = Attribute(
    name="lora_shares",
    kind=AttributeKind.TABLE,
    doc="How much of an adapter is added, by its label as in `lora`: 1 if it is not named, below 0 to take it away.",
)


def lora(context: RuleContext) -> LoraInfo:
    """The adapters of a model. Raises WorkspaceError for one without a configuration, and for shares of others."""
    labels = context.target.labels("lora")
    shares = dict.fromkeys(labels, 1.0)
    for text, share in context.target.table("lora_shares").items():
        try:
            label = read_label(text, context.label.package)
        except LabelError as error:
            raise context.error(str(error), attribute="lora_shares") from None
        if label not in shares:
            raise context.error(f"{text} is none of the adapters in `lora`", attribute="lora_shares")
        if isinstance(share, bool) or not isinstance(share, int | float) or not -1e3 <= share <= 1e3:
            raise context.error(f"the share of {text} is {share}; it has to be a number", attribute="lora_shares")
        shares[label] = float(share)
    files: list[tuple[str, Artifact]] = []
    for number, label in enumerate(labels):
        own = context.files(label).files
        # A target that fetches a folder has it as a whole.
        chosen = [(path, artifact) for path, artifact in own if path in _FILES or path == "" or path.endswith("/")]
        if not any(path == _CONFIG or path not in _FILES for path, _ in chosen):
            raise context.error(
                f"adapter {label} holds no {_CONFIG}",
                attribute="lora",
                advice=("an adapter is a folder that PEFT's save_pretrained wrote",),
            )
        files += [(f"{number}/{path}", artifact) for path, artifact in chosen]
    return LoraInfo(adapters=FilesInfo(files=tuple(files)), shares=tuple(shares.values()))
