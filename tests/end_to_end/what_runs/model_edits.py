"""Changes of the models of a place."""

from __future__ import annotations

import json
import os

from tests.compiler.tiny_models import TINY, checkpoint, write_gguf
from tests.end_to_end.what_runs.build_files import BUILD_FILE
from tests.end_to_end.what_runs.edits import build_file
from tests.end_to_end.what_runs.place import Place
from tests.end_to_end.what_runs.rows import Edit


def touched(place: Place) -> None:
    os.utime(place.root / "tiny.gguf")


def made_executable(place: Place) -> None:
    file = place.root / "tiny.gguf"
    place.write(file, file.read_bytes())
    file.chmod(0o755)


def other_weights(place: Place) -> None:
    numbers = checkpoint()
    numbers["model.norm.weight"] = numbers["model.norm.weight"] + 1
    file = place.root / "tiny.gguf"
    place.write(file, file.read_bytes())
    file.unlink()
    write_gguf(file, numbers)


def fewer_tokens(place: Place) -> None:
    """A tokenizer with fewer tokens than the model has rows."""
    import gguf

    file = place.root / "tiny.gguf"
    tokens = gguf.GGUFReader(file).fields["tokenizer.ggml.tokens"].contents()[:-9]
    types = [gguf.TokenType.CONTROL, *[gguf.TokenType.NORMAL] * (len(tokens) - 1)]
    place.write(file, file.read_bytes())
    file.unlink()
    write_gguf(file, checkpoint(), metadata={"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types})


def config(**changes: object) -> Edit:
    def edit(place: Place) -> None:
        file = place.root / "config.json"
        place.write(file, json.dumps({**json.loads(file.read_text()), **changes}).encode())

    return edit


def reformatted(place: Place) -> None:
    file = place.root / "config.json"
    place.write(file, json.dumps(json.loads(file.read_text()), indent=4).encode())


def longer_context(place: Place) -> None:
    config(max_position_embeddings=96)(place)


def own_config(place: Place) -> None:
    """The model with weights gets a config.json of its own, which says what the file says, but for the context."""
    found = {**TINY, "max_position_embeddings": 96}
    place.write(place.root / "own.json", json.dumps(found).encode())
    build_file('source = "tiny.gguf"', 'source = "tiny.gguf"\nconfig = "own.json"')(place)


def family_added(place: Place) -> None:
    """A family that is the llama family under another name, for another model type."""
    for name in ("family", "model"):
        text = (place.code / f"mlcbuild/compiler/families/llama/{name}.py").read_text()
        text = text.replace("families.llama", "families.throwaway").replace('name="llama"', 'name="throwaway"')
        text = text.replace('model_types=("llama", "mistral")', 'model_types=("throwaway",)')
        text = text.replace('"llama": GGUFArchitecture(', '"throwaway": GGUFArchitecture(')
        place.write(place.code / f"mlcbuild/compiler/families/throwaway/{name}.py", text.encode())


def renamed_model(place: Place) -> None:
    place.write(place.root / "BUILD.toml", BUILD_FILE.replace("weights", "other").encode())


def other_docstring(place: Place) -> None:
    place.exchange(place.code / "mlcbuild/compiler/stages/phase1.py", '"""Phase1: ', '"""The second phase: ')
