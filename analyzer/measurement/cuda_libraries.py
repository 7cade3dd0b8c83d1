"""The shared libraries of CUDA, loaded for ONNX Runtime, and a GPU's memory by the driver's counters."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from analyzer.devices.nvml import driver, handle
from analyzer.errors import MeasurementError

CUDA_PIP_LINE = 'pip install "onnxruntime-gpu[cuda,cudnn]"'
PROVIDER = "CUDAExecutionProvider"
_HINT_DRIVER = "install or update the NVIDIA driver{0}, or profile the CPU alone with --gpu none"
# The oldest driver for each CUDA (docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html).
_DRIVERS = {11: 450, 12: 525, 13: 580}


def load_cuda_libraries(ort: Any) -> None:
    """Load what the CUDA provider is linked with: it finds by name only what is loaded or on the search path.

    Raises:
        MeasurementError: This build of ONNX Runtime has no CUDA provider.
    """
    if PROVIDER not in ort.get_available_providers():
        message = f"this build of ONNX Runtime ({ort.__version__}) has no CUDA provider"
        raise MeasurementError(message, hint=f"install the GPU build: {CUDA_PIP_LINE}")
    # ``preload_dlls`` (onnxruntime/__init__.py, since 1.21) prints what it does not find, which is said better
    # below.
    if hasattr(ort, "preload_dlls"):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            ort.preload_dlls()
    # It looks beside its own package; NVIDIA's may be in another folder, as torch's are outside a virtual
    # environment that sees the system's packages.
    for name in _absent((*_libraries()[0], *_libraries()[1])):
        for path in _elsewhere(name):
            if _loads(str(path)):
                break


def cuda_trouble() -> tuple[str, str]:
    """Return why the CUDA provider did not load, naming the library that is missing, and what to do."""
    driver = _driver_trouble()
    if driver:
        return driver, driver_hint()
    # The provider itself is not loaded to see: it must be ONNX Runtime that loads it first, if it can.
    missing = _absent(_libraries()[0])
    if missing:
        return f"the CUDA provider cannot load: {', '.join(missing)} not found", CUDA_PIP_LINE
    needed = _cuda_version_needed()
    wanted = f"; this build needs CUDA {needed} and cuDNN 9" if needed else ""
    return f"the CUDA provider does not load ({_refusal()}{wanted})", CUDA_PIP_LINE


def _refusal() -> str:
    """Return the dynamic linker's message about the provider, which ONNX Runtime could not load."""
    import onnxruntime

    folder = Path(onnxruntime.__file__).parent / "capi"
    for name in ("libonnxruntime_providers_shared.so", "libonnxruntime_providers_cuda.so"):
        try:
            ctypes.CDLL(str(folder / name))
        except OSError as error:
            return str(error).replace(f"{folder}/", "")
    return "its libraries are there"


def driver_hint() -> str:
    """Return the remedy for a driver that is missing or too old."""
    major = _cuda_version_needed()
    oldest = _DRIVERS.get(major or 0)
    return _HINT_DRIVER.format(f" (CUDA {major} needs {oldest} or newer)" if oldest else "")


def _driver_trouble() -> str:
    import pynvml

    try:
        pynvml.nvmlInit()
        version = pynvml.nvmlSystemGetCudaDriverVersion()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        return f"no NVIDIA driver answers ({error})"
    if count == 0:
        return "the NVIDIA driver finds no GPU"
    needed = _cuda_version_needed()
    # NVML writes 12040 for CUDA 12.4; a driver runs every CUDA of its major version and older ones.
    if needed and version // 1000 < needed:
        return f"the NVIDIA driver supports CUDA {version // 1000}, this build of ONNX Runtime needs {needed}"
    return ""


def _cuda_version_needed() -> int | None:
    try:
        from onnxruntime.capi import build_and_package_info
    except ImportError:
        return None
    version = str(getattr(build_and_package_info, "cuda_version", ""))
    return int(version.split(".")[0]) if version[:1].isdigit() else None


# Opened by name at run time since the releases for CUDA 13; its absence disables the kernels that need it.
_CUDNN = ("libcudnn.so.9",)


def _libraries() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return libraries that a Linux release's provider links, in loading order, and those it opens at need.

    Releases for CUDA 12 are linked with cuFFT and cuDNN as well; those for CUDA 13 open them when used.
    """
    major = _cuda_version_needed()
    if major is None or not sys.platform.startswith("linux"):
        return (), ()
    linked = (f"libcudart.so.{major}", f"libcublasLt.so.{major}", f"libcublas.so.{major}", "libcurand.so.10")
    cufft = "libcufft.so.12" if major >= 13 else "libcufft.so.11"
    opened = (*_CUDNN, f"libnvrtc.so.{major}", cufft)
    return linked if major >= 13 else (*linked, cufft, *_CUDNN), opened


def _absent(names: tuple[str, ...]) -> tuple[str, ...]:
    """Those that the dynamic linker does not find."""
    return tuple(name for name in names if not _loads(name))


def _loads(name: str) -> bool:
    # Loading is the test: the linker's search path, rpath and cache cannot be asked otherwise.
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def _elsewhere(name: str) -> Iterator[Path]:
    """Files of this name in every installed part of NVIDIA's packages."""
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        yield from sorted(Path(folder).glob(f"*/lib/{name}"))


def used_bytes(device_id: int = 0) -> int | None:
    """Return the memory of a GPU that is in use now, by any process; None where the driver does not tell."""
    return _memory(device_id, "used")


def free_bytes(device_id: int = 0) -> int | None:
    """Return the memory of a GPU that nobody uses now; None where the driver does not tell."""
    return _memory(device_id, "free")


def _memory(device_id: int, counter: str) -> int | None:
    # NVML, not CUDA: asking the CUDA runtime would itself take some hundred MB of the card for a context.
    import pynvml

    try:
        with driver() as nvml:
            return int(getattr(nvml.nvmlDeviceGetMemoryInfo(handle(nvml, device_id)), counter))
    except (pynvml.NVMLError, LookupError):
        return None
