"""The clusters that kernels are launched in, in the heading of their CUDA text."""

from __future__ import annotations

from mlcbuild.compiler.backends.cuda import clusters

_TEXT = """\
{leave}extern "C" __global__ void __launch_bounds__(256) one(half* __restrict__ x, int64_t rows);
extern "C" __global__ void __launch_bounds__(256) one(half* __restrict__ x, int64_t rows) {{
  if (rows > 1) {{
    x[0] = x[1];
  }}
}}

extern "C" __global__ void __launch_bounds__(128) two(half* x) {{
  for (int i = 0; i < 4; ++i) {{
    x[i] = 0;
  }}
  {name}();
}}

"""


def test_a_kernel_that_leaves_a_cluster_is_launched_in_one() -> None:
    name, leave = clusters.leave(4)
    text = clusters.declared(_TEXT.format(name=name, leave=leave))
    assert "__launch_bounds__(128) __cluster_dims__(1, 1, 4) two(half* x) {" in text
    assert text.count("__cluster_dims__") == 1
    assert text.replace(" __cluster_dims__(1, 1, 4)", "") == _TEXT.format(name=name, leave=leave)


def test_other_texts_stay_as_they_are() -> None:
    text = _TEXT.format(name="other", leave="")
    assert clusters.declared(text) == text
