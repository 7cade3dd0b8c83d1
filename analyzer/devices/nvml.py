"""NVIDIA's driver asked about the GPUs that CUDA sees (leaf: imports nothing of ours)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def driver() -> Iterator[Any]:
    """The driver's library, open.

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


def handle(nvml: Any, device_id: int = 0) -> Any:
    """The driver's handle of CUDA's device.

    CUDA_VISIBLE_DEVICES is read as CUDA does it: numbers, or the beginning of an identifier (``GPU-...``).

    Args:
        nvml: What ``driver`` gave.
        device_id: CUDA's number of the GPU.

    Raises:
        LookupError: CUDA sees no such device, or it is a part of a GPU.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = nvml.nvmlDeviceGetCount()
    name = str(device_id) if visible is None else visible.split(",")[device_id].strip()
    if name.isdigit() and int(name) < count:
        return nvml.nvmlDeviceGetHandleByIndex(int(name))
    for index in range(count) if name.startswith("GPU-") else ():
        found = nvml.nvmlDeviceGetHandleByIndex(index)
        if _text(nvml.nvmlDeviceGetUUID(found)).startswith(name):
            return found
    raise LookupError(f"CUDA sees no device {device_id}")


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
