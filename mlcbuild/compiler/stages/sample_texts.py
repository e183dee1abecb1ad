"""SampleTexts: the sample of texts that a model is observed on becomes token ids.

Reads the files or folders `texts` and `tokenizer` (a folder, of ImportConfig). Writes the folder `shards` of samples
(`calibration.samples`) and `manifest`: `{"version": 1, "shards": [{"file", "samples"}]}`. A folder's files are read by
name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from mlcbuild.compiler.calibration.samples import chosen, pieces_of, sharded, write_samples
from mlcbuild.compiler.manifest import write_manifest
from mlcbuild.errors import StageError

_TOKENIZER = "tokenizer.json"


def run(
    *,
    texts: Path | Sequence[Path],
    tokenizer: Path,
    shards: Path,
    manifest: Path,
    samples: int,
    tokens: int,
    seed: int,
    shard_count: int,
) -> None:
    """Raises StageError for a text that is empty or not UTF-8, and for texts that make too few samples."""
    encoder = _Encoder(tokenizer / _TOKENIZER)
    pieces = [
        piece
        for path in _files([texts] if isinstance(texts, Path) else texts)
        for piece in pieces_of(encoder.encode(path), beginning=encoder.beginning, length=tokens)
    ]
    found = sharded(chosen(pieces, samples=samples, seed=seed), shards=shard_count, seed=seed)
    shards.mkdir(parents=True, exist_ok=True)
    entries = []
    for number, shard in found.items():
        name = f"samples_{number:05}.json"
        write_samples(shard, shards / name)
        entries.append({"file": name, "samples": len(shard.samples)})
    print(f"{samples} of {len(pieces)} samples of at most {tokens} tokens, in {len(found)} shards")
    write_manifest(manifest, {"shards": entries})


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        yield from sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else (path,)


class _Encoder:
    """The model's tokenizer. `beginning` are the tokens that it puts before a text."""

    def __init__(self, path: Path) -> None:
        from tokenizers import Tokenizer

        content = path.read_bytes()
        try:
            self._tokenizer = Tokenizer.from_buffer(content)
        except Exception as error:  # the library raises nothing more specific
            raise StageError(f"{path.name} cannot be read: {error}") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.beginning = self._beginning()

    def encode(self, path: Path) -> list[int]:
        try:
            text = path.read_bytes().decode()
        except UnicodeDecodeError as error:
            raise StageError(f"{path.name} is not UTF-8 text: byte {error.start}") from error
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        if not text.strip() or not ids:
            raise StageError(f"{path.name} is empty: calibration takes a text")
        return ids

    def _beginning(self) -> tuple[int, ...]:
        text = "A text."
        plain = self._tokenizer.encode(text, add_special_tokens=False).ids
        whole = self._tokenizer.encode(text, add_special_tokens=True).ids
        for begin in range(len(whole) - len(plain) + 1):
            if whole[begin : begin + len(plain)] == plain:
                return tuple(whole[:begin])
        return ()
