"""A workspace with SmolLM2-135M as a package and in another engine's format, and the package's perplexity on a text."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.end_to_end.kernel_cache import KernelCache
from tests.end_to_end.world import World
from tests.smollm2 import smollm2_gguf

TEXT = Path(__file__).parents[2] / "models/texts/alice.txt"
WINDOW = 512
_TABLES = """\
[workspace]
name = "example"

[[model]]
name = "model"
source = "model.gguf"

[[model_package]]
name = "package"
model = ":model"
quantization = "{scheme}"
platform = "@platforms//:x86-64-v3"

[[{rule}]]
name = "other"
model = ":model"
quantization = "{scheme}"

[[perplexity_test]]
name = "perplexity"
package = ":package"
text = "text.txt"
window = {window}
size = "enormous"
"""


def package_and_other(folder: Path, kernel_cache: KernelCache, *, scheme: str, rule: str) -> tuple[float, Path]:
    """The perplexity of a package in `scheme`, and the output of a target of `rule` with the same weights."""
    world = World(folder)
    shutil.copyfile(smollm2_gguf(), world.root / "model.gguf")
    shutil.copyfile(TEXT, world.root / "text.txt")
    world.write("BUILD.toml", _TABLES.format(scheme=scheme, rule=rule, window=WINDOW))
    with kernel_cache.used_by(world.root, world.cache):
        done = world.mlcbuild("test", "--jobs", "1", ":perplexity")
        assert done.code == 0, done.err
        built = world.build(":other")
        assert built.code == 0, built.err
    log = world.root / ".mlcbuild/testlogs/default/perplexity/test.json"
    return float(json.loads(log.read_text())["figures"]["perplexity"]), world.output("other")
