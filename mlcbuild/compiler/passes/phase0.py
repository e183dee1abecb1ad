"""The passes of Phase0 that serve every backend."""

from __future__ import annotations

import tvm

from mlcbuild.compiler.passes.attach_softmax_with_temperature import attach_softmax_with_temperature
from mlcbuild.compiler.passes.dispatch_kv_cache_creation import dispatch_kv_cache_creation
from mlcbuild.compiler.phases.pipeline import Passes, PhaseContext, of_logits


def _softmax(module: tvm.IRModule, context: PhaseContext) -> tvm.IRModule:
    return attach_softmax_with_temperature(module, vocab_size=context.metadata["vocab_size"])


PASSES: Passes = {
    "DispatchKVCacheCreation": lambda module, context: dispatch_kv_cache_creation(
        module, context.target, window=context.window
    ),
    "AttachSoftmaxWithTemperature": of_logits(_softmax),
}
