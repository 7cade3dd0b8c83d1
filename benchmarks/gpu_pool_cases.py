"""Windows, planes and rows that a GPU reduces, and activations between them; for ``gpu_family_cases.py``."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from gpu_family_networks import MICROSOFT, Case, Network

_TYPES = ("float32", "float16")
_BATCHES = (1, 8, 32)
# Copies that read memory of their own each, as operators of a network do.
_COPIES = 8
# Channels, side, window, stride: ResNet-50's, U-Net's and VGG's.
_WINDOWS = ((64, 112, 3, 2), (64, 224, 2, 2), (512, 28, 2, 2))
# Channels and side of the last planes: ResNet-50, MobileNet V2, and larger ones.
_PLANES = ((2048, 7), (1280, 7), (512, 14), (64, 56))
_ACTIVATED = ((96, 112), (192, 28), (960, 7))
_ROWS = (1, 128, 1024, 8192)
_HIDDEN = (768, 4096)


def pools() -> Iterator[Case]:
    """Pools of windows and of planes, means of planes, activations, norms with a sum."""
    for dtype in _TYPES:
        for batch in _BATCHES:
            for channels, side, window, stride in _WINDOWS:
                sizes = {"batch": batch, "channels": channels, "side": side, "window": window}
                windows = {"kernel_shape": [window] * 2, "strides": [stride] * 2}
                for op in ("MaxPool", "AveragePool"):
                    yield _of_images(op, dtype, sizes, **windows, pads=[window // 3] * 4)
            for channels, side in _PLANES:
                sizes = {"batch": batch, "channels": channels, "side": side}
                yield _of_images("GlobalAveragePool", dtype, sizes)
                yield _of_images("ReduceMean", dtype, sizes, axes=[2, 3])
            for channels, side in _ACTIVATED:
                sizes = {"batch": batch, "channels": channels, "side": side}
                for op in ("Clip", "Relu", "Add"):
                    yield _of_images(op, dtype, sizes)
        for rows in _ROWS:
            for hidden in _HIDDEN:
                yield _of_rows(dtype, rows, hidden)


def _of_images(op: str, dtype: str, sizes: dict[str, int], **attributes: list[int]) -> Case:
    net = Network()
    shape = (sizes["batch"], sizes["channels"], sizes["side"], sizes["side"])
    more = []
    if axes := attributes.pop("axes", None):
        more = [net.store("axes", np.array(axes, np.int64))]
    elif op == "Clip":
        more = [net.store("low", np.array(0, dtype)), net.store("high", np.array(6, dtype))]
    for number in range(_COPIES):
        x = net.feed(f"x{number}", shape, dtype)
        second = [net.feed(f"y{number}", shape, dtype)] if op == "Add" else more
        net.result(net.add(op, x, *second, **attributes), dtype)
    return net.case("pool", {"op": op, "dtype": dtype, **sizes}, _COPIES)


def _of_rows(dtype: str, rows: int, hidden: int) -> Case:
    net = Network()
    scale, bias = (net.feed(name, (hidden,), dtype) for name in ("scale", "bias"))
    for number in range(_COPIES):
        x, skip = (net.feed(f"{name}{number}", (rows, hidden), dtype) for name in ("x", "skip"))
        net.result(net.add("SkipLayerNormalization", x, skip, scale, bias, domain=MICROSOFT), dtype)
    sizes: dict[str, int | str] = {"op": "SkipLayerNormalization", "dtype": dtype}
    return net.case("pool", {**sizes, "rows": rows, "hidden": hidden}, _COPIES)
