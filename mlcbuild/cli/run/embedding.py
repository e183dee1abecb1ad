"""`mlcbuild run LABEL -- --embed TEXT`, and `--batch FILE` of an embedding model: vectors of texts.

Vectors are lines of JSON; with `--vectors` they are also in a file of NumPy.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.output.slow_progress import slow_progress
from mlcbuild.cli.output.text import plural
from mlcbuild.cli.run.batch_files import opened, written, written_bytes
from mlcbuild.cli.run.generation_options import GenerationOptions
from mlcbuild.cli.run.loading import loading

if TYPE_CHECKING:
    from mlcbuild.runtime.batch.envelope import RejectedRequest
    from mlcbuild.runtime.embedding.pooling import Array
    from mlcbuild.runtime.embedding.request import EmbeddingRequest
    from mlcbuild.runtime.embedding.run import Embedder


def embed(package: Path, wanted: GenerationOptions, options: GlobalOptions) -> ExitCode:
    """Write a line for the vector of each text. Raises UsageError for a text that is too long, and for a model that
    makes no vectors."""
    from mlcbuild.runtime.embedding.request import vector_document

    with _embedder(package, wanted, options) as embedder:
        found = embedder.vectors([embedder.encode(text) for text in wanted.embed])
    for index, vector in enumerate(found):
        print(json.dumps(vector_document(vector, index=index)))
    _save(found, wanted.vectors)
    return ExitCode.OK


def embed_batch(package: Path, wanted: GenerationOptions, options: GlobalOptions) -> ExitCode:
    """Answer every request of a file. Returns RUN_FAILED where some could not be answered."""
    import numpy as np

    from mlcbuild.runtime.batch.envelope import RejectedRequest
    from mlcbuild.runtime.batch.result import rejection_line
    from mlcbuild.runtime.embedding.request import embedding_line

    assert wanted.batch is not None
    rows: list[Array | None] = []
    requests = rejected = tokens = 0
    with (
        opened(wanted.batch) as source,
        written(wanted.output_file) as output,
        _embedder(package, wanted, options) as embedder,
    ):
        for result in embedder.results(_requests(source)):
            requests += 1
            if isinstance(result, RejectedRequest):
                rejected += 1
                line = rejection_line(result)
                rows.append(None)
            else:
                line = embedding_line(result.request, result.vectors, tokens=result.tokens)
                tokens += sum(result.tokens)
                rows.append(result.vectors if wanted.vectors is not None else None)
            output.write(f"{line}\n")
            output.flush()
    if wanted.vectors is not None:
        width = next((row.shape[1] for row in rows if row is not None), 0)
        none = np.full((1, width), np.nan, np.float32)
        _save(np.concatenate([none if row is None else row for row in rows] or [none[:0]]), wanted.vectors)
    failed = f", {rejected:,} with an error" if rejected else ""
    texts = plural(embedder.embedded, "vector")
    print(f"{plural(requests, 'request')}{failed} · {texts} of {tokens:,} tokens", file=sys.stderr)
    return ExitCode.RUN_FAILED if rejected else ExitCode.OK


@contextmanager
def _embedder(package: Path, wanted: GenerationOptions, options: GlobalOptions) -> Iterator[Embedder]:
    from mlcbuild.runtime.embedding.model import EmbeddingModel
    from mlcbuild.runtime.embedding.run import Embedder
    from mlcbuild.runtime.package import ModelPackage
    from mlcbuild.runtime.tokenizer import PackageTokenizer

    tokenizer = PackageTokenizer(ModelPackage.open(package))
    with loading(options) as loaded:
        model = EmbeddingModel(package, threads=wanted.threads, loaded=loaded)
    with slow_progress(options) as progress:

        def show(count: int) -> None:
            progress.show_unmeasured(f"{plural(count, 'text')} done")

        yield Embedder(model, tokenizer, truncate=wanted.truncate, done=show)


def _requests(source: BinaryIO) -> Iterator[EmbeddingRequest | RejectedRequest]:
    """Lines without a request are skipped, and counted."""
    from mlcbuild.runtime.embedding.request import parse_embedding_request

    for number, line in enumerate(source, 1):
        if line.strip():
            yield parse_embedding_request(line, number)


def _save(vectors: Array, path: Path | None) -> None:
    """Write (texts, hidden) in float32 to a .npy file, which appears when it is whole. Raises OSError."""
    if path is None:
        return
    import numpy as np

    with written_bytes(path) as stream:
        np.save(stream, vectors)
