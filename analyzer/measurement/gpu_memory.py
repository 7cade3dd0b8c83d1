"""How much of a GPU's memory is free or in use, from the driver's counters."""

from __future__ import annotations

from analyzer.devices.nvml import driver, handle


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
