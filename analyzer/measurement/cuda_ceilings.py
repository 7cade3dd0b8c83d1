"""Measure a GPU's ceilings: products and memory through ONNX Runtime, copies through the CUDA runtime."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from analyzer.devices.nvml import driver, handle
from analyzer.errors import AnalyzerError, MeasurementError
from analyzer.measurement.noise import chain
from analyzer.measurement.probes import Probe, feeds_of, floats, model_of
from analyzer.measurement.session import SessionSettings, bind, create, undisturbed_seconds
from analyzer.progress import Progress

_SECONDS = 0.05
# 256 launches apart, against the two synchronisations of a run.
_SHORT, _LONG = 16, 272
_SQUARES = (256, 512, 1024, 2048, 4096)
# Type of the data and the provider's option ``use_tf32``: float32 without it, TF32 with it.
_TYPES = {
    "float32": ("float32", "0"),
    "tf32": ("float32", "1"),
    "float16": ("float16", "1"),
    "bfloat16": ("bfloat16", "1"),
}
_COPIED = tuple(1 << exponent for exponent in (12, 16, 18, 20, 22, 24, 26, 28))
_INSIDE = tuple(1 << exponent for exponent in (20, 22, 24, 25, 26, 28, 30))
_TO_DEVICE, _TO_HOST, _INSIDE_DEVICE = 1, 2, 3  # cudaMemcpyKind


def has_cuda() -> bool:
    """Return whether ONNX Runtime's CUDA provider runs on this machine."""
    import pynvml

    try:
        with driver() as nvml:
            handle(nvml)
    except (pynvml.NVMLError, LookupError):
        return False
    try:
        create(chain(1), SessionSettings(provider="cuda", optimize=False))
    except AnalyzerError:
        return False
    return True


def measure_cuda_ceilings(*, progress: Progress | None = None) -> dict[str, float]:
    """Return the GPU's ceilings by key of ``devices.calibration``; what cannot be measured has no key."""
    ceilings: dict[str, float] = {}
    families: tuple[tuple[str, Callable[[], Mapping[str, float]]], ...] = (
        ("GPU launches", _launches),
        ("GPU products", _products),
        ("GPU memory", _inside),
        ("GPU copies", _copies),
    )
    for number, (family, measure) in enumerate(families):
        if progress is not None:
            progress(family, number / len(families))
        # A card of little memory, or one that another process fills, has the other figures all the same.
        with suppress(MeasurementError):
            ceilings.update(measure())
    return ceilings


def _on_cuda(model: bytes, feeds: Mapping[str, Any], options: Mapping[str, str]) -> Callable[[], object]:
    return bind(model, feeds, SessionSettings(provider="cuda", optimize=False, cuda=options)).call


def _launches() -> Mapping[str, float]:
    """Time of one more node: launched by the host, and inside a CUDA graph."""
    import numpy as np

    ceilings = {}
    for key, options in (("cuda.node", {}), ("cuda.kernel", {"enable_cuda_graph": "1"})):
        try:
            times = [
                undisturbed_seconds(_on_cuda(chain(length), {"t0": np.ones(1, np.float32)}, options), _SECONDS)
                for length in (_SHORT, _LONG)
            ]
        except MeasurementError:
            continue
        each = (times[1] - times[0]) / (_LONG - _SHORT)
        if each > 0:
            ceilings[key] = each
    return ceilings


def _products() -> Mapping[str, float]:
    ceilings = {}
    for name, (dtype, tf32) in _TYPES.items():
        for n in _SQUARES:
            rate = _product(n, dtype, tf32)
            if rate is not None:
                ceilings[f"cuda.gemm.{name}.m{n}.n{n}.k{n}"] = rate
    return ceilings


def _product(n: int, dtype: str, tf32: str) -> float | None:
    """FLOP/s of one product, from the difference between many and few of them in one run."""
    few, many = 1, max(3, min(33, 2 * 4096 // n))
    probe = Probe(
        key="",
        amount=2.0 * n**3,
        per="rate",
        op_type="MatMul",
        inputs=(floats(n, n, dtype=dtype), floats(n, n, dtype=dtype)),
    )
    # Between two counts, so that launch, copies and synchronisation of a run fall away.
    times = []
    for copies in (few, many):
        try:
            call = _on_cuda(model_of(probe.repeated(copies)), feeds_of(probe), {"use_tf32": tf32})
        except MeasurementError:
            return None
        times.append(undisturbed_seconds(call, _SECONDS))
    each = (times[1] - times[0]) / (many - few)
    return probe.amount / each if each > 0 else None


def _runtime() -> ctypes.CDLL | None:
    """Return the CUDA runtime that ONNX Runtime itself loaded; None where it cannot be ceilings."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    except OSError:
        return None
    # By the file that is mapped: a second copy of the runtime would have a context of its own.
    loaded = re.search(r"^(?:\S+\s+){5}(/.*/libcudart\.so[.\d]*)$", maps, re.MULTILINE)
    return ctypes.CDLL(loaded[1]) if loaded else None


class _Memory:
    """Buffers of the CUDA runtime, which a stack frees."""

    def __init__(self, runtime: ctypes.CDLL, stack: ExitStack) -> None:
        self._runtime, self._stack = runtime, stack

    def device(self, nbytes: int) -> ctypes.c_void_p:
        """Memory on the GPU."""
        pointer = ctypes.c_void_p()
        _check(self._runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(nbytes)))
        self._stack.callback(self._runtime.cudaFree, pointer)
        return pointer

    def pinned(self, nbytes: int) -> ctypes.c_void_p:
        """Page-locked memory of the host."""
        pointer = ctypes.c_void_p()
        _check(self._runtime.cudaHostAlloc(ctypes.byref(pointer), ctypes.c_size_t(nbytes), 0))
        self._stack.callback(self._runtime.cudaFreeHost, pointer)
        return pointer

    def copy(
        self, target: ctypes.c_void_p, source: ctypes.c_void_p, nbytes: int, kind: int, times: int = 1
    ) -> None:
        """Copy and wait until it has happened."""
        for _ in range(times):
            _check(self._runtime.cudaMemcpyAsync(target, source, ctypes.c_size_t(nbytes), kind, None))
        _check(self._runtime.cudaDeviceSynchronize())


def _check(status: int) -> None:
    if status != 0:
        raise MeasurementError(f"the CUDA runtime answers with error {status}", hint="see nvidia-smi")


@contextmanager
def _memory() -> Iterator[_Memory | None]:
    runtime = _runtime()
    with ExitStack() as stack:
        yield None if runtime is None else _Memory(runtime, stack)


def _inside() -> Mapping[str, float]:
    """Copy inside the GPU's memory; half of the bytes is read, half is written."""
    with _memory() as memory:
        if memory is None:
            return {}
        source, target = memory.device(max(_INSIDE) // 2), memory.device(max(_INSIDE) // 2)
        ceilings = {}
        for nbytes in _INSIDE:
            few, many = 2, 2 + max(4, min(200, (1 << 32) // nbytes))
            times = [
                undisturbed_seconds(
                    lambda size=nbytes // 2, count=count: memory.copy(
                        target, source, size, _INSIDE_DEVICE, count
                    ),  # type: ignore[misc]
                    _SECONDS,
                )
                for count in (few, many)
            ]
            if times[1] > times[0]:
                ceilings[f"cuda.copy.{nbytes}"] = nbytes * (many - few) / (times[1] - times[0])
        return ceilings


def _copies() -> Mapping[str, float]:
    """Copy between host and GPU by size, from pinned and from ordinary memory."""
    import numpy as np

    with _memory() as memory:
        if memory is None:
            return {}
        largest = max(_COPIED)
        device, pinned = memory.device(largest), memory.pinned(largest)
        ordinary = np.ones(largest, np.uint8)  # ones, so that every page is there
        hosts = {"pinned": pinned, "pageable": ctypes.c_void_p(ordinary.ctypes.data)}
        ceilings = {}
        for kind, host in hosts.items():
            for nbytes in _COPIED:
                ceilings[f"cuda.h2d.{kind}.{nbytes}"] = nbytes / _copy_s(
                    memory, device, host, nbytes, _TO_DEVICE
                )
                ceilings[f"cuda.d2h.{kind}.{nbytes}"] = nbytes / _copy_s(memory, host, device, nbytes, _TO_HOST)
        # Four bytes take no time to move: what is left is the call.
        ceilings["cuda.h2d.latency"] = _copy_s(memory, device, pinned, 4, _TO_DEVICE)
        ceilings["cuda.d2h.latency"] = _copy_s(memory, pinned, device, 4, _TO_HOST)
        return ceilings


def _copy_s(memory: _Memory, target: ctypes.c_void_p, source: ctypes.c_void_p, nbytes: int, kind: int) -> float:
    return undisturbed_seconds(lambda: memory.copy(target, source, nbytes, kind), _SECONDS)
