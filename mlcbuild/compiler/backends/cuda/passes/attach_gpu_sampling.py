"""AttachGPUSamplingFunc: the functions by which a serving engine samples on a GPU, by MLC-LLM's names and arguments.

Numbers are uniform in [0, 1), probabilities float32, tokens and rows int32.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax, te, tirx

from mlcbuild.compiler.backends.cuda.kernels import sampling


def attach_gpu_sampling(module: tvm.IRModule) -> tvm.IRModule:
    """Add `multinomial_from_uniform`, `argsort_probs`, `sample_with_top_p`, `sampler_take_probs`,
    `sampler_verify_draft_tokens` and `renormalize_by_top_p`."""
    builder = relax.BlockBuilder(module)
    for attach in (_multinomial, _argsort, _sample_with_top_p, _take_probabilities, _verify, _renormalize):
        attach(builder)
    made = builder.finalize()
    functions = {
        variable: function.with_attr("tir_non_negative_var", ["vocab_size"])
        if isinstance(function, relax.Function) and variable.name_hint in _NAMES
        else function
        for variable, function in made.functions_items()
    }
    return tvm.IRModule(functions, attrs=made.attrs)


_NAMES = frozenset(
    {
        "multinomial_from_uniform",
        "argsort_probs",
        "sample_with_top_p",
        "sampler_take_probs",
        "sampler_verify_draft_tokens",
        "renormalize_by_top_p",
    }
)


def _multinomial(builder: relax.BlockBuilder) -> None:
    batch, width, count = _sizes("batch_size", "vocab_size", "num_samples")
    parameters = [
        _tensor("probs", (batch, width)),
        _tensor("uniform_samples", (count,)),
        _tensor("sample_indices", (count,), "int32"),
    ]
    _function(builder, "multinomial_from_uniform", parameters, sampling.sample_by_number, [((count,), "int32")])


def _sample_with_top_p(builder: relax.BlockBuilder) -> None:
    batch, width, count = _sizes("batch_size", "vocab_size", "num_samples")
    parameters = [
        _tensor("sorted_probs", (batch, width)),
        _tensor("sorted_indices", (batch, width), "int32"),
        _tensor("uniform_samples", (count,)),
        _tensor("sample_indices", (count,), "int32"),
        _tensor("top_p", (batch,)),
    ]
    _function(builder, "sample_with_top_p", parameters, sampling.sample_top_p, [((count,), "int32")])


def _take_probabilities(builder: relax.BlockBuilder) -> None:
    batch, width, count, most = _sizes("batch_size", "vocab_size", "num_samples", "num_positions")
    parameters = [
        _tensor("unsorted_probs", (batch, width)),
        _tensor("sorted_indices", (batch, width), "int32"),
        _tensor("sample_indices", (count,), "int32"),
        _tensor("sampling_result", (count,), "int32"),
        _tensor("top_prob_offsets", (most,), "int32"),
    ]
    results = [((count,), "float32"), ((most,), "float32"), ((most,), "int32")]
    _function(builder, "sampler_take_probs", parameters, sampling.take_probabilities, results)


def _verify(builder: relax.BlockBuilder) -> None:
    nodes, width, batch = _sizes("num_nodes", "vocab_size", "nbatch")
    parameters = [
        _tensor("draft_probs", (nodes, width)),
        _tensor("draft_tokens", (nodes,), "int32"),
        _tensor("model_probs", (nodes, width)),
        _tensor("token_tree_first_child", (nodes,), "int32"),
        _tensor("token_tree_next_sibling", (nodes,), "int32"),
        _tensor("uniform_samples", (nodes,)),
        _tensor("token_tree_parent_ptr", (batch,), "int32"),
    ]
    changed = [2, 6]
    name = "sampler_verify_draft_tokens"
    with builder.function(name, parameters):
        with builder.dataflow():
            kernel = builder.add_func(sampling.verify_drafts(), f"{name}_kernel")
            types = [parameters[place].ty for place in changed]
            result = builder.emit_output(relax.op.call_tir_inplace(kernel, parameters, changed, out_ty=types))
        builder.emit_func_output(result)


def _renormalize(builder: relax.BlockBuilder) -> None:
    batch, width = _sizes("batch_size", "vocab_size")
    probabilities = _tensor("probs", (batch, width))
    top_p = _tensor("top_p", (batch,))
    pivots = _tensor("init_pivots", (batch, tirx.IntImm("int64", sampling.PIVOTS)))
    with builder.function("renormalize_by_top_p", [probabilities, top_p, pivots]):
        with builder.dataflow():
            find = builder.add_func(sampling.find_top_p_pivot(), "top_p_pivot")
            found = builder.emit(relax.call_tir(find, [probabilities, top_p, pivots], out_ty=[top_p.ty, top_p.ty]))
            threshold, kept = builder.emit(found[0]), builder.emit(found[1])
            keep = builder.add_func(sampling.keep_from_pivot(), "top_p_keep")
            result = relax.call_tir(keep, [probabilities, threshold, kept], out_ty=probabilities.ty)
            result = builder.emit_output(result)
        builder.emit_func_output(result)


def _argsort(builder: relax.BlockBuilder) -> None:
    batch, width = _sizes("batch_size", "vocab_size")
    probabilities = _tensor("probs", (batch, width))

    def taken(values: te.Tensor, order: te.Tensor) -> te.Tensor:
        return te.compute(values.shape, lambda i, j: values[i, order[i, j]], name="take_sorted_probs")

    with builder.function("argsort_probs", [probabilities]):
        with builder.dataflow():
            order = builder.emit(relax.op.argsort(probabilities, descending=True, dtype="int32"))
            values = builder.emit_te(taken, probabilities, order, primfunc_name_hint="take_sorted_probs")
            result = builder.emit_output(relax.Tuple([values, order]))
        builder.emit_func_output(result)


def _function(
    builder: relax.BlockBuilder,
    name: str,
    parameters: list[relax.Var],
    kernel: Callable[[], tirx.PrimFunc],
    results: list[tuple[tuple[tirx.Expr, ...], str]],
) -> None:
    """A function that calls a kernel with its own parameters, and returns what that makes."""
    types = [relax.TensorType(shape, dtype) for shape, dtype in results]
    with builder.function(name, parameters):
        with builder.dataflow():
            made = builder.add_func(kernel(), f"{name}_kernel")
            call = relax.call_tir(made, parameters, out_ty=types if len(types) > 1 else types[0])
            result = builder.emit_output(call)
        builder.emit_func_output(result)


def _sizes(*names: str) -> list[tirx.Var]:
    return [tirx.Var(name, "int64") for name in names]


def _tensor(name: str, shape: tuple[tirx.Expr, ...], dtype: str = "float32") -> relax.Var:
    return relax.Var(name, relax.TensorType(shape, dtype))
