"""Hosts: the processors and triples that libraries are made for, known without loading TVM.

The names are LLVM's: those that the code generator of TVM's wheel lists and makes 64-bit code for. A test compares them
with that list.
"""

from __future__ import annotations

from collections.abc import Mapping

from mlcbuild.suggestions import did_you_mean, known_values

_X86_64 = """
alderlake amdfam10 arrowlake arrowlake-s arrowlake_s athlon-fx athlon64 athlon64-sse3 atom
atom_sse4_2 atom_sse4_2_movbe barcelona bdver1 bdver2 bdver3 bdver4 bonnell broadwell btver1 btver2
cannonlake cascadelake clearwaterforest cooperlake core-avx-i core-avx2 core2 core_2_duo_sse4_1
core_2_duo_ssse3 core_2nd_gen_avx core_3rd_gen_avx core_4th_gen_avx core_4th_gen_avx_tsx
core_5th_gen_avx core_5th_gen_avx_tsx core_aes_pclmulqdq core_i7_sse4_2 corei7 corei7-avx
diamondrapids emeraldrapids goldmont goldmont-plus goldmont_plus gracemont grandridge graniterapids
graniterapids-d graniterapids_d haswell icelake-client icelake-server icelake_client icelake_server
ivybridge k8 k8-sse3 knl knm lunarlake meteorlake mic_avx512 nehalem nocona novalake opteron
opteron-sse3 pantherlake penryn raptorlake rocketlake sandybridge sapphirerapids sierraforest
silvermont skx skylake skylake-avx512 skylake_avx512 slm tigerlake tremont westmere wildcatlake
x86-64 x86-64-v2 x86-64-v3 x86-64-v4 znver1 znver2 znver3 znver4 znver5
"""
_AARCH64 = """
a64fx ampere1 ampere1a ampere1b ampere1c apple-a10 apple-a11 apple-a12 apple-a13 apple-a14 apple-a15
apple-a16 apple-a17 apple-a7 apple-m4 apple-m5 c1-nano c1-premium c1-pro c1-ultra carmel cortex-a320
cortex-a34 cortex-a35 cortex-a510 cortex-a520 cortex-a520ae cortex-a53 cortex-a55 cortex-a57
cortex-a65 cortex-a65ae cortex-a710 cortex-a715 cortex-a72 cortex-a720 cortex-a720ae cortex-a725
cortex-a73 cortex-a75 cortex-a76 cortex-a76ae cortex-a77 cortex-a78 cortex-a78ae cortex-a78c
cortex-r82 cortex-r82ae cortex-x1 cortex-x1c cortex-x2 cortex-x3 cortex-x4 cortex-x925 exynos-m3
exynos-m4 exynos-m5 falkor fujitsu-monaka gb10 grace kryo neoverse-512tvb neoverse-e1 neoverse-n1
neoverse-n2 neoverse-n3 neoverse-v1 neoverse-v2 neoverse-v3 neoverse-v3ae olympus oryon-1 saphira
thunderx thunderx2t99 thunderx3t110 thunderxt81 thunderxt83 thunderxt88 tsv110
"""
PROCESSORS: Mapping[str, frozenset[str]] = {
    "x86_64": frozenset(_X86_64.split()),
    "aarch64": frozenset(_AARCH64.split()),
}
"""Machine (the first part of a triple) → its processors."""

_SHOWN: Mapping[str, str] = {
    "x86_64": "x86-64-v2, x86-64-v3, x86-64-v4, znver4, skylake-avx512, …",
    "aarch64": "cortex-a76, neoverse-n1, neoverse-v2, apple-a14, grace, …",
}
_SYSTEM = "linux"


def triple_error(triple: str) -> tuple[str, tuple[str, ...]] | None:
    """What is wrong with a host's triple, and advice; None where libraries can be made for it."""
    machine, *rest = triple.split("-")
    known = tuple(f"{name}-linux-gnu" for name in sorted(PROCESSORS))
    advice = (known_values(triple, known),)
    if machine not in PROCESSORS:
        return f'libraries cannot be made for the host "{triple}"', advice
    if _SYSTEM not in rest:
        return f'libraries cannot be linked for the host "{triple}": its system is not Linux', advice
    return None


def processor_error(triple: str, name: str) -> tuple[str, tuple[str, ...]] | None:
    """What is wrong with a processor's name for a host of a known machine, and advice; None where nothing is."""
    machine = triple.partition("-")[0]
    processors = PROCESSORS[machine]
    if name in processors:
        return None
    elsewhere = [other for other, names in sorted(PROCESSORS.items()) if name in names]
    hint = f"{name} is a processor of {elsewhere[0]}" if elsewhere else did_you_mean(name, sorted(processors))
    return f'unknown processor "{name}" for {triple}', (f"known: {_SHOWN[machine]}        {hint}".rstrip(),)


def feature_error(feature: str) -> tuple[str, tuple[str, ...]] | None:
    """What is wrong with the form of a processor's feature, and advice; None where nothing is."""
    if feature[:1] in ("+", "-") and feature[1:].replace("-", "").replace("_", "").replace(".", "").isalnum():
        return None
    return f'"{feature}" is no feature to add or to take away', ("write +NAME or -NAME, for example +avx512vnni",)
