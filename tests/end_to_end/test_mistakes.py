"""A BUILD.toml with every mistake at once, read by the command with the rules that users have."""

from __future__ import annotations

from pathlib import Path

from tests.end_to_end.world import World

BUILD_FILE = """\
[workspace]
name = "wrong"
colour = "red"

[configuration.release]
overides = { opt = "O2" }

[[comand]]
name = "misspelt"

[[command]]
name = "no tool"
outputs = ["x"]

[[command]]
name = "types"
tool = ":sh"
outputs = "x"
environment = ["A=b"]
argumnets = []

[[command]]
name = "twice"
tool = ":sh"
outputs = ["x"]

[[command]]
name = "twice"
tool = ":missing"
outputs = ["x"]

[[command]]
name = "cycle-a"
tool = ":sh"
inputs = [":cycle-b"]
outputs = ["a"]

[[command]]
name = "cycle-b"
tool = ":sh"
inputs = [":cycle-a"]
outputs = ["b"]

[[command]]
name = "escapes"
tool = ":sh"
outputs = ["../x"]

[[command]]
name = "not-a-tool"
tool = ":cycle-a"
outputs = ["x"]

[[command]]
name = "unknown-cache"
tool = ":sh"
outputs = ["x"]
cache = "remote"

[[command]]
name = "m-{size}"
tool = ":sh"
outputs = ["x"]
matrix = { size = [] }

[[platform]]
name = "gpu"
kind = "cdua"
cpu = "x86-64-v3"

[[tool]]
name = "sh"
path = "/bin/sh"
executable = "sh.sh"

[[model_library]]
name = "library"
model = ":mdoel"
quantization = "q4f16_9"
platform = ":gpu"
opt = "O7"

[[model]]
name = "model"
config = "config.json"
"""

EXPECTED = (Path(__file__).parent / "expected/every_mistake.txt").read_text()


def test_every_mistake_is_told_at_once(world: World) -> None:
    world.write("BUILD.toml", BUILD_FILE)
    world.write("sub/BUILD.toml", '[[command]\nname = "x"\n')
    done = world.build("//...")
    assert (done.code, done.out) == (7, "")
    assert done.err == EXPECTED
    assert not (world.root / "mlcbuild-out").exists()
    assert not world.cache.exists(), "nothing was begun"
    assert world.mlcbuild("query", "//...").err == EXPECTED
