"""Which of the driver's GPUs is CUDA's device 0: CUDA_VISIBLE_DEVICES as NVIDIA's CUDA guide describes it."""

from types import SimpleNamespace
from typing import Any

import pytest

from analyzer.devices import nvml

UUIDS = ("GPU-11111111-aaaa", "GPU-22222222-bbbb", "GPU-33333333-cccc")
DRIVER: Any = SimpleNamespace(
    nvmlDeviceGetCount=lambda: len(UUIDS),
    nvmlDeviceGetHandleByIndex=lambda index: UUIDS[index],
    nvmlDeviceGetUUID=lambda handle: handle,
)


@pytest.mark.parametrize(
    ("visible", "device", "found"),
    [
        (None, 0, 0),
        (None, 2, 2),
        ("1", 0, 1),
        ("2,0", 0, 2),
        ("2, 0", 1, 0),
        ("GPU-22222222-bbbb", 0, 1),
        ("GPU-3333", 0, 2),
    ],
)
def test_the_gpu_is_the_one_that_cuda_counts(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, device: int, found: int
) -> None:
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert nvml.handle(DRIVER, device) == UUIDS[found]


@pytest.mark.parametrize("visible", ["", "-1", "7", "GPU-4", "MIG-11111111"])
def test_where_cuda_sees_none_there_is_none(monkeypatch: pytest.MonkeyPatch, visible: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(LookupError):
        nvml.handle(DRIVER)
