"""How much of a GPU's memory a process came to use, from the driver's counter."""

from __future__ import annotations

import contextlib


class GpuMemory:
    """Memory in use on one GPU, from now on.

    The CUDA provider's arena only grows, so what is in use after the runs is the peak. Other processes that
    start or end meanwhile disturb the figure.

    Args:
        device_id: CUDA's number of the GPU; the driver may count otherwise where CUDA_VISIBLE_DEVICES is set.
    """

    def __init__(self, device_id: int) -> None:
        self._device_id = device_id
        self._before = self._used()

    def _used(self) -> int | None:
        import pynvml

        try:
            pynvml.nvmlInit()
            handle = pynvml.nvmlDeviceGetHandleByIndex(physical_index(self._device_id))
            return int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)
        except (pynvml.NVMLError, ValueError):
            return None

    def growth(self) -> int | None:
        """Bytes more than at the beginning; None where the driver does not tell."""
        now = self._used()
        if now is None or self._before is None:
            return None
        return max(0, now - self._before)

    def close(self) -> None:
        """Let the driver's library go."""
        import pynvml

        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def physical_index(device_id: int) -> int:
    """The driver's number of CUDA's device.

    Raises:
        ValueError: CUDA_VISIBLE_DEVICES names devices in a way that has no number.
    """
    import os

    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = [name.strip() for name in visible.split(",") if name.strip()]
    return int(names[device_id]) if device_id < len(names) else device_id
