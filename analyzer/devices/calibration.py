"""This machine's measured ceilings: what they are called, whose they are, where they are kept.

``measurement.cpu_ceilings`` measures them; here they get a fingerprint and a home. A calibration is a
mapping of keys to floats in SI base units. ``{T}`` is a number of intra-op threads: every key exists for 1
thread and for the default number (``threads``), the largest GEMM also for the powers of two between. All of it
is ONNX Runtime's own CPU kernels, on float32 unless the key says otherwise, called alone, the cost of the call
taken off.

``threads``, ``cores``
    Default intra-op threads; logical processors available.
``busy``
    Cores that other processes took meanwhile; only there where it was enough to spoil the figures.
``wander.t{T}``
    A factor: how many times as long a probe took in the worse of two visits, some twenty seconds apart; the
    median of all probes.
``dispatch.t{T}``
    s: a node that does nothing, inside a graph.
``call.t{T}``
    s: one call of a session with bound inputs and outputs, before its first node.
``run.t{T}``
    s: the same with arrays passed in and out, as a program calls it.
``sharing.t{T}``
    s: the chain of nodes of ``measurement.noise``, whose threads read what others wrote; only
    where the default T is over 1.
``gemm.{dtype}.t{T}.m{M}.n{N}.k{K}``
    FLOP/s (2MNK): MatMul with constant (packed) weights K x N; dtype ``float32``, ``float64``, ``int8``
    (MatMulInteger, uint8 by int8).
``gemm_dynamic.float32.t{T}.m{M}.n{N}.k{K}``
    FLOP/s: both operands computed at run time.
``gemm_trans.float32.t{T}.m{M}.n{N}.k{K}``
    FLOP/s: Gemm with bias and transB=1, constant weights.
``bmm.float32.t{T}.b{B}.m{M}.n{N}.k{K}``
    FLOP/s (2BMNK): batched, both operands computed at run time.
``conv.float32.t{T}.{class}``
    FLOP/s (2 per multiply-accumulate), in ONNX Runtime's blocked layout (NCHWc) where it has one; the classes
    and their shapes are in ``measurement/probes.toml``:
    ``stem7x7s2``, ``stem3x3s2``, ``3x3``, ``3x3small``,
    ``3x3s2``, ``1x1``, ``1x1small``, ``5x5``, ``group32``, ``depthwise3x3``, ``depthwise3x3s2``,
    ``depthwise3x3far56`` and ``far14`` (from memory), ``depthwise5x5``, ``conv1d``, ``conv3d``,
    ``transpose2x2s2``.
``copy.t{T}.{bytes}``
    B/s, read and written counted, by the bytes of both together: a streaming elementwise kernel (``Neg``).
``read.t{T}.{bytes}``
    B/s of weights, by the bytes of all: MatMul of one row by 1024 x 1024 of float32, one after the other.
``elementwise.{Op}.t{T}``
    s per output element, 256 x 1024 elements: arithmetic, activations, comparisons, casts, quantization,
    norms, softmax. Variants: ``AddBias`` (a row is broadcast), ``AddScalar``, ``MulScalar``, ``Pow``
    (exponent 2), ``PowTensor``, ``GeluTanh``, ``CastHalf`` (float32 to float16), ``CastFloat`` (back),
    ``CastInt`` (float32 to int64), ``AddInt64``, ``MulInt64``, ``EqualInt64``.
``reduce.{Op}.t{T}.{axis}``
    s per *input* element; axis ``inner`` (last) or ``outer`` (first).
``pool.{Op}.t{T}``
    s per window element (output elements times window): ``MaxPool``, ``AveragePool``, both 3x3 stride 2.
``move.{Op}.t{T}``
    s per output element: ``Concat``, ``Split``, ``Slice``, ``Gather`` (rows), ``TransposeMatrix``,
    ``TransposeHeads`` (0213), ``TransposeNHWC``, ``ResizeNearest``, ``ResizeLinear`` and others.
``row.{Op}.t{T}``
    s per row of 8 elements: ``Softmax``, ``LayerNormalization``, ``ReduceSum``, ``ReduceL2``, ``ArgMax``; per
    run that is copied: ``Gather`` (one element), ``Concat`` (two), ``ConcatSingles`` (one).
``rnn.{Op}.t{T}.h{H}.b{B}``
    s per time step of ``LSTM``, ``GRU`` or ``RNN``, one direction, the input as wide as the state.
``tree.t{T}.{steps}``
    s per step, a comparison or addition: a tree of depth d takes d + 1 of them for each row.
``attention.float32.t{T}.b{B}.h{heads}.s{S}.d{D}``
    FLOP/s (4 B heads S S D): com.microsoft MultiHeadAttention.
``cuda.node``, ``cuda.kernel``
    s: host time of one node that launches one small kernel; the same inside a CUDA graph.
``cuda.gemm.{dtype}.m{M}.n{N}.k{K}``
    FLOP/s: ``float32`` (TF32 off), ``tf32``, ``float16``, ``bfloat16``.
``cuda.copy.{bytes}``
    B/s inside the GPU's memory, read and written counted, by the bytes of both together.
``cuda.{h2d,d2h}.{pinned,pageable}.{bytes}``
    B/s between host and GPU (``cuda.h2d.pinned.1048576``).
``cuda.h2d.latency``, ``cuda.d2h.latency``
    s: a copy of 4 bytes.

A kernel that this build of ONNX Runtime lacks has no key. A figure is the lower quartile of its runs: what the
machine does when nobody disturbs it.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from analyzer.devices.nvml import driver_facts
from analyzer.errors import OutputError
from analyzer.progress import Progress
from analyzer.quantities import LARGEST
from analyzer.run_folder import file_aside
from analyzer.units import with_prefix

Measure = Callable[[Progress], Mapping[str, float]]


class _Saved(msgspec.Struct, kw_only=True):
    """The file. Another version of it is measured anew, never converted."""

    version: Literal[1] = 1
    fingerprint: dict[str, str]
    date: str
    # Rates and times alike are divided by: a damaged file must not become an infinite prediction.
    values: Annotated[dict[str, Annotated[float, Meta(gt=0, le=LARGEST)]], Meta(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Measured ceilings of one machine.

    Attributes:
        values: By key, see the module's docstring.
        fingerprint: What they hold for: processor, cores, ONNX Runtime, GPU.
        date: When they were measured, ISO 8601.
        path: Where they are kept.
    """

    values: Mapping[str, float]
    fingerprint: Mapping[str, str]
    date: str
    path: Path


def calibrate(
    measure: Measure,
    *,
    progress: Progress | None = None,
    folder: Path | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Calibration:
    """Measure this machine's ceilings and keep them, in the user's data folder where no other is given.

    ``measure``, such as ``measurement.cpu_ceilings.measure_ceilings``, is called with ``progress``: the
    family being measured and how much is done, 0 to 1.

    Raises:
        OutputError: The file cannot be written.
    """
    values = measure(progress or (lambda _stage, _fraction: None))
    machine = fingerprint()
    path = path_of(machine, folder)
    date = now().isoformat(timespec="seconds")
    saved = _Saved(fingerprint=machine, date=date, values=dict(values))
    document = msgspec.json.format(msgspec.json.encode(saved), indent=1)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A run that reads meanwhile finds the old file or the new one, never half of it.
        with file_aside(path.parent, document + b"\n") as whole:
            os.replace(whole, path)
    except OSError as error:
        message = f"the calibration cannot be written to {path}: {error.strerror}"
        raise OutputError(message, hint="make the folder writable, or set XDG_DATA_HOME") from None
    return Calibration(values=MappingProxyType(dict(values)), fingerprint=machine, date=date, path=path)


def load(folder: Path | None = None) -> Calibration | None:
    """Return what was measured on this machine with this ONNX Runtime; None where there is nothing readable."""
    machine = fingerprint()
    path = path_of(machine, folder)
    try:
        saved = msgspec.json.decode(path.read_bytes(), type=_Saved)
    except (OSError, ValueError):  # of msgspec too
        return None
    if saved.fingerprint != machine:
        return None
    return Calibration(values=MappingProxyType(saved.values), fingerprint=machine, date=saved.date, path=path)


def load_calibration(folder: Path | None = None) -> Mapping[str, float] | None:
    """Return the ceilings alone, None where this machine is not calibrated."""
    calibration = load(folder)
    return None if calibration is None else calibration.values


def folder_of_calibrations() -> Path:
    """Return the folder of calibrations, in the user's data folder of this program."""
    import platformdirs

    return Path(platformdirs.user_data_dir("analyzer", appauthor=False)) / "calibration"


def path_of(machine: Mapping[str, str], folder: Path | None = None) -> Path:
    """Return the file for a fingerprint."""
    # Sixteen digits tell a user's machines apart, and the file repeats the whole fingerprint: `load` compares
    # it.
    digest = hashlib.sha256(json.dumps(machine, sort_keys=True).encode()).hexdigest()[:16]
    return (folder or folder_of_calibrations()) / f"{digest}.json"


def fingerprint() -> dict[str, str]:
    """Return what a calibration is for; a change of any of these makes it void."""
    return {
        "cpu": _cpu_model(),
        "cores": str(affinity_cores()),
        "onnxruntime": _onnxruntime_version(),  # kernels change with the release, and so do their rates
        "gpu": _gpus(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def first_processor() -> Mapping[str, str]:
    """Return what Linux says of its first processor; empty on other systems."""
    try:
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n", maxsplit=1)[0]
    except OSError:
        return {}
    rows = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in rows}


def _cpu_model() -> str:
    rows = first_processor()
    if not rows:
        import cpuinfo

        return str(cpuinfo.get_cpu_info().get("brand_raw", platform.processor()))
    # x86 names vendor, family and model; Arm implementer and part (Linux, arch/*/kernel/cpuinfo.c and
    # arch/x86/kernel/cpu/proc.c). Fields that change between looks (MHz, bogomips) are left out.
    fields = ("vendor_id", "cpu family", "model", "model name", "stepping", "CPU implementer", "CPU part")
    return " ".join(rows[key] for key in fields if key in rows) or platform.machine()


def affinity_cores() -> int:
    """Return the logical cores that this process may use: two in a container that is pinned to two."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _onnxruntime_version() -> str:
    from importlib import metadata

    # The distribution's metadata, so that the runtime need not be imported. Both install the same module: with
    # both present nothing tells which of them is imported, and the GPU's is named.
    for name in ("onnxruntime-gpu", "onnxruntime"):
        try:
            return f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            continue
    return "none"


def _gpus() -> str:
    """Return names of the GPUs and the driver's version; empty without a driver."""
    facts = driver_facts()
    if isinstance(facts, str) or not facts.gpus:
        return ""
    return ", ".join([*facts.gpus, f"driver {facts.version}"])


def taken_meanwhile(values: Mapping[str, float]) -> float:
    """Return the share of the cores that other processes had meanwhile; 0 where that spoilt nothing."""
    share = values.get("busy", 0.0) / max(values.get("cores", 1.0), 1.0)
    return min(1.0, share) if share > _SPOILT else 0.0


_SPOILT = 0.1


def wavered(values: Mapping[str, float], threads: int) -> float:
    """Return how many times as long the same took seconds later on so many threads; 1 on a steady machine."""
    return max(1.0, values.get(f"wander.t{threads}", 1.0) / STEADY)


STEADY = 1.05
"""Lower quartiles of some milliseconds differ by so much from each other where nothing disturbs them."""
_UNSTEADY = 1.15


def disturbance(values: Mapping[str, float]) -> str:
    """Return what disturbed a calibration, as the end of a sentence; empty where nothing did."""
    if taken_meanwhile(values):
        cores, others = values.get("cores", 1.0), values["busy"]
        return f"calibrated while other processes ran ({others:.1f} of {cores:.0f} cores)"
    changed = max(wavered(values, threads) for threads in (1, int(values.get("threads", 1.0))))
    if changed > _UNSTEADY:
        times = f"operators took {changed:.1f} times as long seconds later"
        return f"calibrated while its speed changed ({times})"
    return ""


# What the summary shows: key, words, unit.
_HEADLINES = (
    ("gemm.float32.t{T}.m1024.n1024.k1024", "float32 product, {T} threads", "FLOP/s"),
    ("gemm.float32.t1.m1024.n1024.k1024", "float32 product, 1 thread", "FLOP/s"),
    ("gemm.int8.t{T}.m512.n512.k512", "int8 product, {T} threads", "OP/s"),
    ("conv.float32.t{T}.3x3", "3x3 convolution, {T} threads", "FLOP/s"),
    ("copy.t1.262144", "first caches, 1 thread", "B/s"),
    ("copy.t{T}.268435456", "memory, {T} threads", "B/s"),
    ("elementwise.Add.t1", "Add, 1 thread", "s per element"),
    ("dispatch.t{T}", "one more node", "s"),
    ("call.t{T}", "one call", "s"),
    ("cuda.gemm.float32.m4096.n4096.k4096", "GPU float32 product", "FLOP/s"),
    ("cuda.gemm.tf32.m4096.n4096.k4096", "GPU TF32 product", "FLOP/s"),
    ("cuda.gemm.float16.m4096.n4096.k4096", "GPU float16 product", "FLOP/s"),
    ("cuda.copy.1073741824", "GPU memory", "B/s"),
    ("cuda.node", "one more node on the GPU", "s"),
    ("cuda.h2d.pinned.67108864", "host to GPU, pinned", "B/s"),
)


def headlines(calibration: Calibration) -> tuple[tuple[str, str], ...]:
    """Return the main figures in words and with units, those that are there."""
    threads = f"{calibration.values.get('threads', 1):.0f}"
    figures = []
    for key, words, unit in _HEADLINES:
        value = calibration.values.get(key.format(T=threads))
        if value is not None:
            figures.append((words.format(T=threads), with_prefix(value, unit)))
    # With one thread by default two keys are one: the same line stands once.
    return tuple(dict.fromkeys(figures))
