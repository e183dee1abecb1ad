"""Weights leave the tuple of all just before they are read."""

from __future__ import annotations

from tvm import relax

from mlcbuild.compiler.backends.cuda.passes.read_parameters_late import read_parameters_late

_TYPE = relax.TensorType((4,), "float32")


def test_a_weight_is_taken_out_of_the_tuple_before_what_reads_it() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", _TYPE)
    weights = relax.Var("weights", relax.TupleType([_TYPE] * 3))
    with builder.function("main", [x, weights], attrs={"num_input": 1}):
        with builder.dataflow():
            first, second, third = (builder.emit(relax.TupleGetItem(weights, place)) for place in range(3))
            made = builder.emit(relax.op.add(x, second))
            more = builder.emit(relax.op.add(made, first))
            output = builder.emit_output(relax.op.add(more, second))
            kept = builder.emit_output(third)
        builder.emit_func_output(relax.Tuple([output, kept]))
    module = read_parameters_late(builder.get())
    relax.analysis.well_formed(module)
    (block,) = module["main"].body.blocks
    order = [
        int(binding.value.index) if isinstance(binding.value, relax.TupleGetItem) else "add"
        for binding in block.bindings
        if not isinstance(binding.value, relax.Var)
    ]
    assert order == [1, "add", 0, "add", "add", 2]
    assert module["main"].attrs["num_input"] == 1
