"""AttachSoftmaxWithTemperature for GPUs: the function that turns logits into probabilities, by two kernels."""

from __future__ import annotations

import tvm
from tvm import relax, tirx

from mlcbuild.compiler.backends.cuda.kernels import softmax
from mlcbuild.compiler.passes.attach_softmax_with_temperature import NAME
from mlcbuild.compiler.passes.set_active_vocab_size import unknown_active_vocab_size


def attach_softmax_in_chunks(module: tvm.IRModule, *, vocab_size: int) -> tvm.IRModule:
    """Add what `attach_softmax_with_temperature` adds. The first kernel describes chunks of each row, the second makes
    probabilities by what it says of them."""
    builder = relax.BlockBuilder(module)
    batch = tirx.Var("batch_size", "int64")
    logits = relax.Var("logits", relax.TensorType((batch, 1, vocab_size), "float32"))
    temperature = relax.Var("temperature", relax.TensorType((batch,), "float32"))
    chunks = relax.TensorType((batch, softmax.chunks(vocab_size)), "float32")
    with builder.function(NAME, [logits, temperature]):
        with builder.dataflow():
            active = builder.emit(unknown_active_vocab_size())
            describe = builder.add_func(softmax.describe_chunks(vocab_size), "softmax_chunks")
            found = builder.emit(relax.call_tir(describe, [logits, temperature, active], out_ty=[chunks, chunks]))
            maxima, sums = builder.emit(found[0]), builder.emit(found[1])
            normalize = builder.add_func(softmax.normalize(vocab_size), "softmax_normalize")
            result = relax.call_tir(normalize, [logits, temperature, active, maxima, sums], out_ty=logits.ty)
            result = builder.emit_output(result)
        builder.emit_func_output(result)
    return builder.finalize()
