"""Recording what the GPU does: torch.profiler (Kineto, CUPTI) sees every library of the process."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def record(
    call: Callable[[], object], count: int, folder: Path, device_id: int = 0
) -> tuple[Mapping[str, Any] | None, str]:
    """Run ``count`` times, each ending with the GPU idle, under CUPTI.

    Returns:
        The Kineto trace as parsed JSON, its file in ``folder`` removed, or None and why there is none.
    """
    why = _trouble()
    if why:
        return None, why
    import torch
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    torch.cuda.synchronize(device_id)
    with profile(activities=activities):  # the first one starts CUPTI and loses records
        call()
        torch.cuda.synchronize(device_id)
    with profile(activities=activities) as recording:
        for _ in range(count):
            call()
        torch.cuda.synchronize(device_id)  # records of what still runs would be out of range
    path = folder / "kineto.json"
    recording.export_chrome_trace(str(path))
    text = path.read_text(encoding="utf-8", errors="replace")
    path.unlink(missing_ok=True)
    try:
        return json.loads(text, strict=False), ""  # names of kernels may hold any character
    except ValueError as error:
        return None, f"the trace that torch.profiler wrote is damaged ({error})"


def _trouble() -> str:
    """Why nothing can be recorded; empty where it can."""
    try:
        import torch
        from torch.profiler import ProfilerActivity, supported_activities
    except ImportError:
        return "torch, which carries CUPTI, is not installed"
    if not torch.cuda.is_available():
        return "this build of torch has no CUDA, or finds no GPU"
    if ProfilerActivity.CUDA not in supported_activities():  # type: ignore[no-untyped-call]
        return "this build of torch has no CUPTI"
    return ""
