"""The parameters of recurrences by MLC-LLM's names, or Hugging Face's where it has no such model, and the tensors of
checkpoints that they are."""

from __future__ import annotations

from dataclasses import dataclass

from mlcbuild.compiler.models.architecture.recurrence import DeltaRuleConfig, Recurrence, StateSpaceConfig
from mlcbuild.compiler.models.checkpoints.delta_rule_in_gguf import DeltaRuleInGGUF
from mlcbuild.compiler.models.checkpoints.operations import (
    Concatenate,
    Flatten,
    LogOfNegative,
    Operation,
    Reshape,
    Split,
)
from mlcbuild.compiler.models.checkpoints.parameters import (
    CheckpointTensor,
    GGUFSource,
    Parameter,
    TensorLayout,
)
from mlcbuild.compiler.models.parameter_role import ParameterRole


def recurrence_parameters(
    config: Recurrence,
    hidden_size: int,
    *,
    own: str,
    checkpoint: str,
    gguf: str,
    others: tuple[str, ...] = (),
) -> list[Parameter]:
    """Those of the module that is called `own`, and `checkpoint`, or one of `others`, in checkpoints. `gguf` is the
    layer in a GGUF file."""
    builder = _Builder(own=own, checkpoint=checkpoint, gguf=gguf, others=others)
    make = _state_space if isinstance(config, StateSpaceConfig) else _delta_rule
    return make(config, hidden_size, builder)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class _Builder:
    own: str
    checkpoint: str
    gguf: str
    others: tuple[str, ...]

    def there(self, name: str, *shape: int, operations: tuple[Operation, ...] = ()) -> TensorLayout:
        """A tensor of a GGUF file, and what makes Hugging Face's of it."""
        return TensorLayout(name=f"{self.gguf}.{name}", shape=shape, operations=operations)

    def matrix(
        self, name: str, *shape: int, operations: tuple[Operation, ...] = (), gguf: GGUFSource | None = None
    ) -> Parameter:
        return self._parameter(f"{name}.weight", ParameterRole.LINEAR, shape, operations=operations, gguf=gguf)

    def vector(self, name: str, *shape: int, source: str = "", gguf: GGUFSource | None = None) -> Parameter:
        return self._parameter(name, ParameterRole.VECTOR, shape, source=source, gguf=gguf)

    def constant(self, name: str, *shape: int, gguf: GGUFSource | None = None) -> Parameter:
        return self._parameter(name, ParameterRole.FLOAT32, shape, gguf=gguf)

    def _parameter(
        self,
        name: str,
        role: ParameterRole,
        shape: tuple[int, ...],
        *,
        source: str = "",
        operations: tuple[Operation, ...] = (),
        gguf: GGUFSource | None = None,
    ) -> Parameter:
        tensor = CheckpointTensor(
            name=f"{self.checkpoint}.{source or name}",
            shape=shape,
            gguf=gguf,
            others=tuple(TensorLayout(name=f"{other}.{source or name}", shape=shape) for other in self.others),
        )
        return Parameter(name=f"{self.own}.{name}", role=role, shape=shape, sources=(tensor,), operations=operations)


def _state_space(config: StateSpaceConfig, hidden_size: int, builder: _Builder) -> list[Parameter]:
    """llama.cpp has no biases of the two products."""
    size, heads, there = config.inner + config.channels + config.heads, config.heads, builder.there
    found = [builder.matrix("in_proj", size, hidden_size, gguf=there("ssm_in.weight", size, hidden_size))]
    if config.bias:
        found.append(builder.vector("in_proj.bias", size))
    convolution = (config.channels, 1, config.convolution)
    flat = there("ssm_conv1d.weight", config.channels, config.convolution, operations=(Reshape(shape=convolution),))
    found.append(builder.vector("conv1d.weight", *convolution, gguf=flat))
    if config.convolution_bias:
        found.append(builder.vector("conv1d.bias", config.channels, gguf=there("ssm_conv1d.bias", config.channels)))
    by_heads = Reshape(shape=(heads,))
    groups = (config.groups, config.inner // config.groups)
    whole = (Reshape(shape=(config.inner,)),)
    found += [
        builder.constant("dt_bias", heads, gguf=there("ssm_dt.bias", heads)),
        builder.constant("A_log", heads, gguf=there("ssm_a", heads, 1, operations=(by_heads, LogOfNegative()))),
        builder.constant("D", heads, gguf=there("ssm_d", heads, 1, operations=(by_heads,))),
        builder.vector("norm.weight", config.inner, gguf=there("ssm_norm.weight", *groups, operations=whole)),
        builder.matrix("out_proj", hidden_size, config.inner, gguf=there("ssm_out.weight", hidden_size, config.inner)),
    ]
    if config.bias:
        found.append(builder.vector("out_proj.bias", hidden_size))
    return found


def _delta_rule(config: DeltaRuleConfig, hidden_size: int, builder: _Builder) -> list[Parameter]:
    """A fused checkpoint has the rows of each key head together: its query, its key, the values and the gates of the
    heads that share them; or the steps and the decays of these."""
    shared = config.heads // config.key_heads
    values = shared * config.value_dim

    def apart(*sizes: int) -> tuple[Operation, ...]:
        return (
            Reshape(shape=(config.key_heads, sum(sizes), hidden_size)),
            Split(axis=1, sizes=sizes),
            Flatten(axes=2),
            Concatenate(axis=0),
        )

    there = DeltaRuleInGGUF(config=config, layer=builder.gguf)
    if config.fused:
        size = config.channels + config.inner
        rows = apart(config.key_dim, config.key_dim, values, values)
        pairs = builder.there("ssm_ba.weight", 2 * config.heads, hidden_size)
        found = [
            builder.matrix("in_proj_qkvz", size, hidden_size, operations=rows, gguf=there.fused(hidden_size)),
            builder.matrix("in_proj_ba", 2 * config.heads, hidden_size, operations=apart(shared, shared), gguf=pairs),
        ]
    else:
        packed = there.channels("attn_qkv.weight", hidden_size)
        found = [builder.matrix("in_proj_qkv", config.channels, hidden_size, gguf=packed)]
        for name, gguf_name, size in (
            ("z", "attn_gate", config.value_dim),
            ("b", "ssm_beta", 1),
            ("a", "ssm_alpha", 1),
        ):
            tensor = there.of_heads(f"{gguf_name}.weight", size, hidden_size)
            found.append(builder.matrix(f"in_proj_{name}", config.heads * size, hidden_size, gguf=tensor))
    convolution = (config.channels, 1, config.convolution)
    weight = there.channels("ssm_conv1d.weight", config.convolution, then=(Reshape(shape=convolution),))
    return [
        *found,
        builder.vector("conv1d_weight", *convolution, source="conv1d.weight", gguf=weight),
        builder.constant("dt_bias", config.heads, gguf=there.of_heads("ssm_dt.bias", 1)),
        builder.constant("A_log", config.heads, gguf=there.of_heads("ssm_a", 1, then=(LogOfNegative(),))),
        builder.vector("norm.weight", config.value_dim, gguf=builder.there("ssm_norm.weight", config.value_dim)),
        builder.matrix("out_proj", hidden_size, config.inner, gguf=there.output(hidden_size)),
    ]
