"""Parts of a GGUF file that are fetched one by one are one model, and each is cached alone."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.compiler.tiny_models import checkpoint, write_gguf
from tests.end_to_end.world import HEAD, World


@pytest.mark.slow
def test_parts_that_are_pinned_one_by_one_give_the_weights_of_the_whole(tmp_path: Path) -> None:
    world = World(tmp_path)
    write_gguf(world.root / "whole.gguf", checkpoint())
    write_gguf(tmp_path / "m.gguf", checkpoint(), tensors_in_a_part=8)
    parts = sorted(tmp_path.glob("m-*.gguf"))
    fetched = "".join(
        f'[[local_file]]\nname = "{path.name}"\npath = "{path}"\n'
        f'sha256 = "{hashlib.sha256(path.read_bytes()).hexdigest()}"\n\n'
        for path in parts
    )
    labels = ", ".join(f'":{path.name}"' for path in parts)
    targets = "".join(
        f'[[model]]\nname = "{name}-model"\nsource = "{source}"\n\n'
        f'[[quantized_weights]]\nname = "{name}"\nmodel = ":{name}-model"\nquantization = "q4f32_1"\n\n'
        for name, source in (("one", "whole.gguf"), ("other", ":parts"), ("first", f":{parts[0].name}"))
    )
    group = f'[[filegroup]]\nname = "parts"\nsrcs = [{labels}]\n\n'
    world.write("BUILD.toml", "\n".join([HEAD, fetched, group, targets]))
    done = world.build(":one", ":other")
    assert done.code == 0, done.err
    one, other = (world.output(name) / "params_shard_0.bin" for name in ("one", "other"))
    assert one.read_bytes() == other.read_bytes()
    done = world.build(":first")
    assert done.code == 1
    assert "is one of 3 parts of a model, and part 2, 3 are missing" in done.err
