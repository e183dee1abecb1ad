"""q4f16_2: q4f16_1 without the embedding and the head, which stay in float16."""

from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.quantization.group.scheme import GroupScheme

SCHEME = GroupScheme(
    name="q4f16_2",
    model_dtype="float16",
    bits=4,
    group_size=32,
    covered=frozenset({ParameterRole.LINEAR, ParameterRole.EXPERTS}),
)
