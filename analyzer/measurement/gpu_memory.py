"""How much of a GPU's memory is free, and how much of it a process came to use, from the driver's counters."""

from __future__ import annotations

from typing import Any

from analyzer.devices.nvml import driver, handle


class GpuMemory:
    """Memory in use on one GPU, from now on.

    The CUDA provider's arena only grows, so what is in use after the runs is the peak. Other processes that
    start or end meanwhile disturb the figure.

    Args:
        device_id: CUDA's number of the GPU.
    """

    def __init__(self, device_id: int) -> None:
        self._device_id = device_id
        self._before = self._used()

    def _used(self) -> int | None:
        memory = _memory_info(self._device_id)
        return None if memory is None else int(memory.used)

    def growth(self) -> int | None:
        """Bytes more than at the beginning; None where the driver does not tell."""
        now = self._used()
        if now is None or self._before is None:
            return None
        # Another process may have ended meanwhile.
        return max(0, now - self._before)


def free_bytes(device_id: int = 0) -> int | None:
    """Memory of a GPU that nobody uses now; None where the driver does not tell."""
    memory = _memory_info(device_id)
    return None if memory is None else int(memory.free)


def _memory_info(device_id: int) -> Any:
    # NVML, not CUDA: asking the CUDA runtime would itself take some hundred MB of the card for a context.
    import pynvml

    try:
        with driver() as nvml:
            return nvml.nvmlDeviceGetMemoryInfo(handle(nvml, device_id))
    except (pynvml.NVMLError, LookupError):
        return None
