"""ExportObserved: a decoder becomes a Relax module whose layers tell what their matrices are multiplied by.

Reads `model` (model.json of ResolveModel). Writes `module` (IR), which has an entry function for each kind of layer
(`calibration.observation`), `metadata` (JSON), which names no parameters, because entry functions take those of their
layer as arguments, and `observation` (JSON), which tells Observe of the entry functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mlcbuild.compiler import ir
from mlcbuild.compiler import metadata as metadata_file
from mlcbuild.compiler.calibration.observation import write_observation
from mlcbuild.compiler.calibration.observed_encoder import observed_encoder
from mlcbuild.compiler.calibration.observed_layers import observed_language_model
from mlcbuild.compiler.calibration.observing_reader import ObservingReader
from mlcbuild.compiler.models.compilable import AnyModelBuilder, build_model
from mlcbuild.compiler.models.description import read_model
from mlcbuild.compiler.models.networks.causal_lm import LanguageModel
from mlcbuild.compiler.models.networks.encoder_model import Encoder
from mlcbuild.compiler.quantization.scheme import QuantizationScheme
from mlcbuild.errors import StageError


def run(
    *,
    model: Path,
    module: Path,
    metadata: Path,
    observation: Path,
    models: Sequence[AnyModelBuilder],
    scheme: QuantizationScheme,
) -> None:
    """`models` and `scheme`, which quantizes nothing, are plug-ins. Raises StageError for a model that is neither
    a language model nor an encoder."""
    description = read_model(model)
    reader = ObservingReader(scheme)
    layers = description.layers
    # The first layer of each kind: here the model's last one is like the others, because no norm comes behind it.
    shown = sorted({layers.kind(number): number for number in reversed(range(layers.count))}.values())
    built = build_model(description, models, reader, layers=shown)
    if isinstance(built, LanguageModel):
        exported, observed = observed_language_model(built, reader, layers, shown)
    elif isinstance(built, Encoder):
        exported, observed = observed_encoder(built, reader, layers, shown)
    else:
        raise StageError(f"a model of the family {description.family} cannot be calibrated")
    ir.save_module(exported, module)
    document: dict[str, object] = {
        "model_type": description.model_type,
        "quantization": scheme.name,
        "kv_state_kind": description.kv_state_kind,
        "vocab_size": description.vocab_size,
        "model_task": "embedding",  # no function of the library makes logits
        metadata_file.SHOWN_LAYERS: shown,
        "params": [],
    }
    metadata_file.write(document, metadata)
    write_observation(observed, observation)
