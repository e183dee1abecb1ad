"""What a parameter is to a model, whatever the model."""

from __future__ import annotations

import enum


class ParameterRole(enum.Enum):
    """What a parameter is to the model: a scheme decides by it how the parameter is stored."""

    EMBEDDING = "embedding"
    LINEAR = "linear"
    FINAL_FC = "final fc"  # the language model's head, where it is not the embedding
    EXPERTS = "experts"  # matrices of equal shape (experts, out, in), each of which is a linear layer's
    ROUTER = "router"  # chooses experts: a small matrix, whose errors would choose others
    ABSORBED = "absorbed"  # matrices of heads (heads, out, in) of latent attention, which MLC-LLM does not quantize
    VECTOR = "vector"  # norms and biases: never quantized
    FLOAT32 = "float32"  # always float32: what a recurrence takes powers of, or what ranks experts
