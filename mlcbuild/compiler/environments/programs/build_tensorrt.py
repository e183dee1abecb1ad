"""`model` (ONNX) → `engine`: TensorRT's builder, on the GPU that the engine is for.

Needs tensorrt with its libraries, and NVIDIA's driver. It measures kernels while it builds, so two runs differ. Written
against the Python interface of TensorRT 10 and 11 as NVIDIA documents it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76  # CUdevice_attribute, cuda.h
_SHOWN = 5


def run(
    *,
    model: Path,
    engine: Path,
    architecture: str,
    optimization: int,
    tf32: bool,
    workspace_bytes: int,
    runs_on: str,
    sizes: Mapping[str, Sequence[int]],
) -> None:
    """`sizes` has the least, the usual and the greatest of each size that is open. `runs_on` is `same`, or a level of
    TensorRT's hardware compatibility. A `workspace_bytes` of 0 is all of the GPU's memory."""
    _require(architecture)
    try:
        import tensorrt as trt
    except (ImportError, OSError) as error:
        raise SystemExit(
            f"TensorRT cannot be imported: {error}; its libraries are in packages of NVIDIA's own index, whose names "
            "end in -libs"
        ) from None
    told: list[str] = []
    builder = trt.Builder(_logger(trt, told))
    # TensorRT 10 would else choose types by itself; 11 never does, and takes the flag.
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, _logger(trt, told))
    if not parser.parse_from_file(str(model.resolve())):
        found = [parser.get_error(number).desc() for number in range(parser.num_errors)][:_SHOWN]
        raise SystemExit(f"TensorRT {trt.__version__} cannot read the model: {'; '.join(found or told[-_SHOWN:])}")
    configuration = builder.create_builder_config()
    configuration.builder_optimization_level = optimization
    (configuration.set_flag if tf32 else configuration.clear_flag)(trt.BuilderFlag.TF32)
    if workspace_bytes:
        configuration.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, workspace_bytes)
    if runs_on != "same":
        configuration.hardware_compatibility_level = getattr(trt.HardwareCompatibilityLevel, runs_on.upper())
    _add_profile(builder, network, configuration, sizes)
    built = builder.build_serialized_network(network, configuration)
    if built is None:
        raise SystemExit(f"TensorRT {trt.__version__} cannot build the model: {'; '.join(told[-_SHOWN:])}")
    engine.write_bytes(built)


def _logger(trt: Any, told: list[str]) -> Any:
    """Keeps errors, for the message of the action."""

    class Logger(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, message: str) -> None:
            if severity in (trt.ILogger.Severity.ERROR, trt.ILogger.Severity.INTERNAL_ERROR):
                told.append(message)

    return Logger()


def _add_profile(builder: Any, network: Any, configuration: Any, sizes: Mapping[str, Sequence[int]]) -> None:
    """Say what open sizes are. ONNX's names of sizes are those of TensorRT's dimensions."""
    left = dict(sizes)
    profile = builder.create_optimization_profile()
    is_open = False
    for number in range(network.num_inputs):
        tensor = network.get_input(number)
        names = [tensor.get_dimension_name(axis) for axis in range(len(tensor.shape))]
        unknown = [name for name, size in zip(names, tensor.shape, strict=True) if size < 0 and name not in sizes]
        if unknown:
            raise SystemExit(
                f"the sizes {', '.join(map(repr, unknown))} of {tensor.name} are open: give them in sizes, or in the "
                "onnx_model"
            )
        if any(size < 0 for size in tensor.shape):
            is_open = True
            shapes = [
                tuple(size if size >= 0 else sizes[name][place] for name, size in zip(names, tensor.shape, strict=True))
                for place in range(3)
            ]
            profile.set_shape(tensor.name, *shapes)
        for name, size in zip(names, tensor.shape, strict=True):
            if size < 0:
                left.pop(name, None)
    if left:
        raise SystemExit(f"no input has an open size {', '.join(sorted(left))}")
    if is_open:
        configuration.add_optimization_profile(profile)


def _require(architecture: str) -> None:
    """Exit unless the first GPU, which TensorRT builds for, is of this architecture."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise SystemExit(
            f"an engine for {architecture} is built on such a GPU, and here is no driver of NVIDIA's"
        ) from None
    device, numbers = ctypes.c_int(), []
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
        raise SystemExit(f"an engine for {architecture} is built on such a GPU, and here is none")
    for attribute in (_CAPABILITY_MAJOR, _CAPABILITY_MINOR):
        number = ctypes.c_int()
        driver.cuDeviceGetAttribute(ctypes.byref(number), attribute, device)
        numbers.append(number.value)
    found = f"sm_{numbers[0]}{numbers[1]}"
    if found != architecture:
        raise SystemExit(f"an engine for {architecture} is built on such a GPU, and this one is {found}")
