"""A GGUF file in parts is one model; parts that are missing, foreign or there twice are told."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mlcbuild.compiler.stages import import_config
from mlcbuild.compiler.weights.source import gguf_files, open_source
from mlcbuild.errors import StageError
from mlcbuild.rules.families import families
from tests.compiler.resolving import readers
from tests.compiler.tiny_models import TINY, checkpoint, write_gguf

DEEPER = {**TINY, "num_hidden_layers": 3}


def split(folder: Path, name: str = "m", **changes: object) -> list[Path]:
    config = {**TINY, **changes}
    folder.mkdir(exist_ok=True)
    write_gguf(folder / f"{name}.gguf", checkpoint(config), config, tensors_in_a_part=8)
    return sorted(folder.glob(f"{name}-*.gguf"))


def import_config_of(source: Path, out: Path) -> dict[str, bytes]:
    out.mkdir()
    import_config.run(
        readers=readers(),
        source=source,
        config=out / "config.json",
        tokenizer=out / "tokenizer",
        vocabulary=out / "vocabulary.json",
        licenses=out / "licenses",
        families=families(),
    )
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file()}


def test_parts_are_read_as_the_whole_file(tmp_path: Path) -> None:
    parts = split(tmp_path / "parts")
    assert [path.name for path in parts] == [f"m-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    (tmp_path / "whole").mkdir()
    whole = write_gguf(tmp_path / "whole" / "m.gguf", checkpoint())
    one, other = open_source(whole), open_source(tmp_path / "parts")
    assert one.descriptions == other.descriptions
    for name in one.descriptions:
        np.testing.assert_array_equal(one.read(name).data, other.read(name).data)
    one.close()
    other.close()
    assert import_config_of(whole.parent, tmp_path / "one") == import_config_of(tmp_path / "parts", tmp_path / "other")


def test_parts_of_any_names_are_put_in_their_order(tmp_path: Path) -> None:
    """As a filegroup of fetched files may call them; their names say nothing, their metadata does."""
    from mlcbuild.compiler.weights.gguf_weights import GGUFWeights

    parts = split(tmp_path / "parts")
    renamed = [path.rename(path.with_name(f"{3 - number}.gguf")) for number, path in enumerate(parts)]
    source = GGUFWeights(*sorted(renamed))
    assert len(source.descriptions) == len(checkpoint())
    source.close()


def remove(parts: list[Path]) -> None:
    parts[1].unlink()


def keep_the_last(parts: list[Path]) -> None:
    parts[0].unlink()
    parts[1].unlink()


def repeat(parts: list[Path]) -> None:
    shutil.copyfile(parts[0], parts[1])


def exchange(parts: list[Path]) -> None:
    parts[0].rename(parts[0].with_suffix(".away"))
    parts[1].rename(parts[0])
    parts[0].with_suffix(".away").rename(parts[1])


def take_anothers(parts: list[Path]) -> None:
    other = split(parts[0].parent.parent / "other", num_hidden_layers=3)
    shutil.copyfile(other[1], parts[1])


def take_one_of_the_same_count(parts: list[Path]) -> None:
    other = split(parts[0].parent.parent / "other", name="other")
    shutil.copyfile(other[1], parts[0].parent / other[1].name)
    parts[1].unlink()


def truncate(parts: list[Path]) -> None:
    parts[2].write_bytes(parts[2].read_bytes()[:-100])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            remove,
            r"m-00001-of-00003\.gguf is one of 3 parts of a model, and part 2 is missing\n.*with all parts",
        ),
        (keep_the_last, r"m-00003-of-00003\.gguf is one of 3 parts of a model, and part 1, 2 are missing"),
        (repeat, r"m-00002-of-00003\.gguf is part 1 of 3, and no part 2"),
        (exchange, r"m-00001-of-00003\.gguf is part 2 of 3, and no part 1"),
        (take_anothers, r"m-00002-of-00003\.gguf and .*m-00001-of-00003\.gguf are not parts of one model"),
        (take_one_of_the_same_count, r"holds 3 GGUF files, which are not parts of one"),
        (truncate, r"m-00003-of-00003\.gguf is truncated: it ends at byte"),
    ],
)
def test_what_is_wrong_with_parts_is_told(tmp_path: Path, damage: Callable[[list[Path]], None], message: str) -> None:
    parts = split(tmp_path / "parts")
    damage(parts)
    with pytest.raises(StageError, match=message):
        open_source(tmp_path / "parts")
    with pytest.raises(StageError, match=message):
        import_config_of(tmp_path / "parts", tmp_path / "out")
    assert not (tmp_path / "out" / "config.json").exists()


def test_a_part_alone_says_what_the_source_has_to_be(tmp_path: Path) -> None:
    (first, *_) = split(tmp_path / "parts")
    assert gguf_files(first) == (first,)
    with pytest.raises(StageError, match=r"part 2, 3 are missing\n.*a folder with all parts, or a filegroup of them"):
        open_source(first)


def test_a_count_of_parts_that_cannot_be_is_told(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", checkpoint(), metadata={"split.count": 2**31 - 1})
    with pytest.raises(StageError, match=r"one of 2147483647 parts of a model, and part 2, 3, 4, 5, 6, 7, 8, 9, … are"):
        open_source(path)
