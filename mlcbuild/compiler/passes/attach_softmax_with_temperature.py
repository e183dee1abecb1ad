"""AttachSoftmaxWithTemperature: the function that turns logits into probabilities.

`softmax_with_temperature(logits (batch, 1, vocabulary) float32, temperature (batch,) float32)` gives
probabilities (batch, 1, vocabulary). A temperature of 0 puts all of the probability on the largest logit,
in equal parts where several are the largest. Entries behind the active vocabulary are padding of the model's table, and
get probability 0.

How many entries are active depends on the tokenizer, which no stage before Lower knows: models of one shape share
kernels whatever their tokenizers. So kernels are given the number, and SetActiveVocabSize writes it into the function.
"""

from __future__ import annotations

import tvm
from tvm import relax, te, tirx

from mlcbuild.compiler.passes.set_active_vocab_size import unknown_active_vocab_size

NAME = "softmax_with_temperature"
_GREEDY_BELOW = 1e-5  # temperatures up to this count as 0: dividing by them would overflow


def attach_softmax_with_temperature(module: tvm.IRModule, *, vocab_size: int) -> tvm.IRModule:
    """Add the function for a vocabulary of `vocab_size` entries, of which it is not yet known how many are active."""
    builder = relax.BlockBuilder(module)
    batch = tirx.Var("batch_size", "int64")
    logits = relax.Var("logits", relax.TensorType((batch, 1, vocab_size), "float32"))
    temperature = relax.Var("temperature", relax.TensorType((batch,), "float32"))
    with builder.function(NAME, [logits, temperature]):
        with builder.dataflow():
            active = builder.emit(unknown_active_vocab_size())
            numerators = builder.emit_te(
                _numerators, logits, temperature, active, primfunc_name_hint="softmax_numerators"
            )
            sums = builder.emit_te(_row_sums, numerators, primfunc_name_hint="row_sums")
            result = builder.emit_output(relax.op.divide(numerators, sums))
        builder.emit_func_output(result)
    return builder.finalize()


def _numerators(logits: te.Tensor, temperature: te.Tensor, active: tirx.Var) -> te.Tensor:
    batch, one, width = logits.shape
    index = te.reduce_axis((0, active), name="k")
    largest = te.compute((batch,), lambda b: te.max(logits[b, 0, index], axis=index), name="largest")

    def numerator(b: tirx.Var, _: tirx.Var, v: tirx.Var) -> tirx.Expr:
        full, zero = tirx.const(1.0, "float32"), tirx.const(0.0, "float32")
        below = logits[b, 0, v] - largest[b]
        greedy = tirx.if_then_else(below >= zero, full, zero)
        soft = tirx.exp(below / temperature[b])
        chosen = tirx.if_then_else(temperature[b] > tirx.const(_GREEDY_BELOW, "float32"), soft, greedy)
        return tirx.if_then_else(v < active, chosen, zero)

    return te.compute((batch, one, width), numerator, name="softmax_numerators")


def _row_sums(numerators: te.Tensor) -> te.Tensor:
    batch, one, width = numerators.shape
    index = te.reduce_axis((0, width), name="k")
    return te.compute((batch, one, 1), lambda b, _, __: te.sum(numerators[b, 0, index], axis=index), name="row_sums")
