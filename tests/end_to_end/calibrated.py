"""A workspace with a small model and a text on which it is observed."""

from __future__ import annotations

import json
import random
from pathlib import Path

from safetensors.numpy import save_file

from tests.compiler.packaged import byte_level_tokenizer
from tests.compiler.tiny_models import TINY, checkpoint
from tests.end_to_end.world import HEAD, World

STATISTICS = '\n[[calibration_statistics]]\nname = "statistics"\nmodel = ":tiny"\ntext = ":text"\n'


def write_model(world: World) -> None:
    """A llama of two layers, whose tokens are bytes, and a text of 4,000 letters."""
    world.write("model/config.json", json.dumps(TINY))
    world.write("model/tokenizer.json", json.dumps(byte_level_tokenizer(300)))
    save_file(checkpoint(), world.root / "model/model.safetensors")
    letters = random.Random(3)
    world.write("text.txt", "".join(letters.choice("abcdefghij klmnop") for _ in range(4000)))


def write_targets(
    world: World, *more: str, samples: int = 12, seed: int = 0, texts: tuple[str, ...] = ("text.txt",)
) -> None:
    world.write(
        "BUILD.toml",
        HEAD + '\n[[model]]\nname = "tiny"\nsource = "model"\n\n[[calibration_text]]\nname = "text"\n'
        f"texts = {json.dumps(texts)}\nsamples = {samples}\ntokens = 32\nshards = 3\nseed = {seed}\n" + "".join(more),
    )


def statistics_in(folder: Path) -> dict[str, bytes]:
    """The files of statistics by name."""
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert "statistics.json" in found
    return found
