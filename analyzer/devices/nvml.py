"""NVIDIA's driver asked about the GPUs that CUDA sees (leaf: imports nothing of ours)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType


@contextlib.contextmanager
def driver() -> Iterator[ModuleType]:
    """Yield the driver's library, open.

    Raises:
        pynvml.NVMLError: No driver answers.
    """
    import pynvml

    pynvml.nvmlInit()
    try:
        yield pynvml
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def handle(nvml: ModuleType, device_id: int = 0) -> object:
    """Return the driver's handle of CUDA's device.

    CUDA_VISIBLE_DEVICES is read as CUDA does it: numbers, or the beginning of an identifier (``GPU-...``).

    Raises:
        LookupError: CUDA sees no such device, or it is a part of a GPU.
    """
    # CUDA Programming Guide, "CUDA Environment Variables". CUDA numbers the fastest GPU first unless
    # CUDA_DEVICE_ORDER is PCI_BUS_ID, and NVML's number need not be CUDA's (NVML API,
    # nvmlDeviceGetHandleByIndex): among unlike GPUs only an identifier is sure.
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = nvml.nvmlDeviceGetCount()
    name = str(device_id) if visible is None else visible.split(",")[device_id].strip()
    if name.isdigit() and int(name) < count:
        return nvml.nvmlDeviceGetHandleByIndex(int(name))
    for index in range(count) if name.startswith("GPU-") else ():
        candidate = nvml.nvmlDeviceGetHandleByIndex(index)
        if text(nvml.nvmlDeviceGetUUID(candidate)).startswith(name):
            return candidate
    raise LookupError(f"CUDA sees no device {device_id}")


def text(value: str | bytes) -> str:
    """Return the driver's answer as text; older releases of nvidia-ml-py give bytes."""
    return value.decode() if isinstance(value, bytes) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFacts:
    """The driver's facts about itself.

    Attributes:
        version: Its release, ``570.86.10``.
        cuda: The newest CUDA that it runs, ``12.8``.
        gpus: Names of all GPUs that it sees, those that CUDA_VISIBLE_DEVICES hides among them.
    """

    version: str
    cuda: str
    gpus: tuple[str, ...]


def driver_facts() -> DriverFacts | str:
    """Return the driver's facts about itself, or why it has none."""
    import pynvml

    try:
        with driver() as nvml:
            cuda = nvml.nvmlSystemGetCudaDriverVersion()
            handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
            return DriverFacts(
                version=text(nvml.nvmlSystemGetDriverVersion()),
                cuda=f"{cuda // 1000}.{cuda % 1000 // 10}",  # 12080 is 12.8
                gpus=tuple(text(nvml.nvmlDeviceGetName(gpu)) for gpu in handles),
            )
    except pynvml.NVMLError as error:
        return f"{error}"
