"""Operator times on a CPU: from what was measured on it, or from a reference core scaled by its figures.

Both give the same thing, a mapping by the keys of ``devices.calibration``, so that there is one model. Products
and convolutions are looked up by shape, elementwise operators cost their time per element or the copy of their
bytes, whichever is longer; weights that the caches cannot keep are read from memory at each run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from analyzer.arrays import Bools, Floats
from analyzer.devices.calibration import taken_meanwhile, wavered
from analyzer.devices.device import Device
from analyzer.precision import DevicePrecision, on_device
from analyzer.prediction.calibration_tables import tables
from analyzer.prediction.equivalent_loops import LIKE
from analyzer.prediction.expert_pieces import ACTIVATION
from analyzer.prediction.features import CALLS, LOOP, LOOP_WIDTH, SCAN, VOTES
from analyzer.prediction.integer_kernels import FAMILIES, UNPACKED, IntegerShapes
from analyzer.prediction.reference_core import gain, reference_ceilings, reference_dispatch_s
from analyzer.prediction.text_pieces import TEXT, TEXT_WORK
from analyzer.prediction.work_item import FLOAT_BYTES, IS_PRODUCT, Kind, among
from analyzer.prediction.workload import Workload, whether

# A session's call on the reference core (``call`` in reference_core.toml: 1.74 us), where none was measured.
CALL_S = 1.8e-6
# Work on one thread from which ONNX Runtime's operators use several: 100,000 cycles in Eigen's cost model
# (unsupported/Eigen/CXX11/src/Tensor/TensorCostModel.h), 20 us at 5 GHz.
_PARALLEL_S = 20e-6
_SURELY_PARALLEL_S = 20 * _PARALLEL_S
# Reading alone reaches this share of a copy's rate (both ways counted): MatMul of one row, weights of 64 MB.
_READ_SHARE = 0.65
# One row times an expert's weights, which lie by rows and are packed by nobody, reads them at this share of it:
# mixtures of 50 to 300 MB took 1.2 to 1.5 times as long as at the whole rate, on one thread and on two.
_EXPERT_READ_SHARE = 0.75
# Visits to tree nodes per second and thread; one thread, scattered reads.
_TREE_VISIT_S = 4e-9
# A tree is walked by all rows before the next. Beyond the probe's 127 nodes a step is a little dearer for each
# doubling, and much from where one does not stay in the first cache (nodes of 24 bytes, half of 64 KiB): of 48
# trained ensembles those of 200 to 850 nodes take 1.1 to 1.4 times as long, of 2,800 to 12,000 1.7 to 5 times
# (an EPYC with 1 MiB beside each core, its last cache shared with other guests).
_TREE_NODES, _TREE_GROWTH = (127.0, 1365.0), (0.15, 0.4)
# 45 runs of 15 samples on two threads of an EPYC: 8 % off at the median, 30 % at most.
_MEASURED_WIDTH = 1.35
# One measured core stands in for every other. BERT on one to six cores of an i7-8700, which nothing but the
# gain of cores was fitted to, is within 1.25 (tests/benchmarks/prediction.md); the rest is assumed. More where
# a figure is.
_CATALOGUE_WIDTH, _ASSUMED_WIDTH = 1.8, 1.15
# Seconds an element where not even an Add was measured.
_NO_OP = 1.5e-10
# A slice of a reduction over a middle axis, a small kernel (as measured).
_SLICE_S, _KERNEL_S = 70e-9, 2e-7
# A row, or a run of elements that is copied, besides its elements, where no probe of short rows tells: 20,000
# rows of 8 take 303 us (softmax), 435 us (layer norm) and 48 us (sum); 3,000 runs of one element 26 us (gather)
# and 50,000 of them 44 us (concat), 80,000 of four 228 us.
_ROW_S = {
    "Softmax": 14e-9,
    "LayerNormalization": 20e-9,
    "ReduceSum": 2.3e-9,
    "Gather": 7e-9,
    "Concat": 2.5e-9,
    "ConcatSingles": 0.8e-9,
}
# Of operators whose rows no probe has, the one whose rows they are taken for; by kind where none is named.
_ROWS_LIKE = {
    **dict.fromkeys(("ReduceL2", "ReduceL1", "ReduceSumSquare", "ReduceLogSum", "ReduceProd"), "ReduceL2"),
    **dict.fromkeys(("ArgMax", "ArgMin"), "ArgMax"),
    **dict.fromkeys(("Concat", "Split"), "Concat"),
}
_ROWS_OF_KIND = {
    Kind.SOFTMAX: "Softmax",
    Kind.NORM: "LayerNormalization",
    Kind.REDUCE: "ReduceSum",
    Kind.MOVE: "Gather",
}
# A row to which another is added, its elements apart.
_SPAN_S = 2e-8
# Seconds an element of what no probe measures.
_UNPROBED = {
    # An operator of a body: its dispatch and its tensors, which are allocated anew in each trip.
    **dict.fromkeys(CALLS, 2.5e-7),
    VOTES: 1e-9,
    # Exponentials one after the other (moe_base_cpu.h): 256 rows of 4,096 take 12.2 ms longer by SwiGLU than by
    # ReLU (EPYC, Zen 4).
    ACTIVATION: 1.16e-8,
    "ReduceLogSumExp": 4e-9,  # an exponential of one number after the other; 256 rows of 1,024: 1.03 ms
    "LabelEncoderStrings": 4e-8,  # a probe cannot bind strings; 1,000 of them in two columns: 83 us
    # Nor texts: 64 and 1,024 of 1 to 100 words on one core of an EPYC (Zen 4), ONNX Runtime 1.31.1; most are
    # within 1.5, texts of one word within 3.
    TEXT: 1.6e-8,
    "TextLowered": 5.4e-9,
    "TextCompared": 5e-9,
    "TextCopied": 6e-10,
    "TextMatched": 1.5e-9,
    "TextSplit": 2.0e-9,
    "TokensByExpression": 2.15e-8,
    "TokensBySeparator": 1.8e-8,
    "TokensByCharacter": 5.3e-9,
    "GramsOfText": 1.8e-8,
    "GramsOfNumbers": 8e-9,
    # An entry of a map; 1,000 rows of two classes: 134 us.
    **dict.fromkeys(("ZipMap", "CastMap", "DictVectorizer"), 7e-8),
}
# One more tensor of a Split or Concat: 0.1 us again and again, two to three times that among other operators.
_TENSOR_S = 2e-7
# One more operand of a Sum, Max, Min or Mean, its elements apart: each pair has a tensor of its own.
_PAIR_S = 2.5e-7


# What passes the caches before a buffer is used again, in multiples of what an operator moves.
_OTHERS = 2.0
# Kernels that write what they then read again, in multiples of their result: Where selects from either side
# into a tensor of its own and merges the two (onnxruntime/core/providers/cpu/tensor/where_op.cc).
_TEMPORARIES = {"Where": 4.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """One CPU with a number of threads, in one precision.

    Attributes:
        values: By key of ``devices.calibration``.
        threads: Intra-op threads.
        table: The number of threads in the keys of operators.
        scale: What fewer threads than ``table`` keep of its rates; 1 where there are as many.
        modelled: Whether what threads gain is modelled, not measured.
        dispatch_s: Cost of one more node.
        precision: What is computed in.
        width: Half-width of the interval, as a factor.
        method: For the report.
    """

    values: Mapping[str, float]
    threads: int
    table: int
    scale: float
    modelled: bool
    dispatch_s: float
    precision: DevicePrecision
    width: float
    method: str

    def of(self, key: str, threads: int | None = None) -> float | None:
        """A value by its key with ``{T}`` in it."""
        return self.values.get(key.replace("{T}", str(threads or self.table)))


def ceilings(device: Device, precision: str, threads: int | None = None) -> Ceilings:
    """What is known of a CPU: its calibration, else the reference core scaled by its figures."""
    device_precision = on_device(device, precision)
    values = device.calibration
    wanted = max(1, threads or int(values.get("threads", device.units)))
    if values:
        table = int(values.get("threads", 1)) if wanted > 1 else 1
        # Other processes made rates lower, by about as much as cores lacked (225 GFLOP/s became 129). A host's
        # other guests slow one minute and not the next: the calibration's, or the model's.
        disturbed = max(1.0 + taken_meanwhile(values), wavered(values, table))
        method, width = "calibrated on this machine", _MEASURED_WIDTH * disturbed
    else:
        wanted = min(wanted, device.threads or wanted)
        values, table = reference_ceilings(device, min(wanted, device.units)), 1
        method, width = "a measured core, scaled by the catalogue's figures", _CATALOGUE_WIDTH
        width *= _ASSUMED_WIDTH if device.assumed else 1.0
    return Ceilings(
        values=values,
        threads=min(wanted, device.units) if not device.calibration else wanted,
        table=table,
        scale=min(1.0, wanted / table),
        modelled=not device.calibration,
        dispatch_s=values.get(f"dispatch.t{table}", 1.7e-7),
        precision=device_precision,
        width=width,
        method=method,
    )


_WITH_BODIES = frozenset({"Loop", "Scan", "SequenceMap", LOOP, SCAN})


def has_body(work: Workload) -> Bools:
    """Whether pieces are loops: bodies are counted, but not how often their small kernels are called."""
    looping = whether(work, _WITH_BODIES)
    return looping[work.op] if len(work.ops) else np.zeros(0, dtype=np.bool_)


def widths(work: Workload, at: Ceilings) -> Floats:
    """Half-width of each piece's 90 % interval, as a factor."""
    less_sure = np.array([op in FAMILIES or _is_classical(op) for op in work.ops], dtype=np.bool_)
    less_sure = less_sure[work.op] | (work.kind == Kind.TREE) if len(work.ops) else less_sure
    known = np.where(less_sure, at.width * _LESS_SURE, at.width)
    known = (
        np.where(whether(work, TEXT_WORK)[work.op], at.width * _TEXTS_SURE, known) if len(work.ops) else known
    )
    if at.modelled:
        known = np.where(IS_PRODUCT[work.kind], known, known * _UNSCALED)
    return np.maximum(np.where(has_body(work), LOOP_WIDTH, known), work["spread"])


# 42 quantised and 20 classical models on two threads and on one of an EPYC (tests/benchmarks/deployed.md): 11 %
# to 14 % off at the median; 117 of 124 within this width of what was measured.
_LESS_SURE = 1.15
# Texts of other lengths and letters than those that were timed, besides the spread of those that are not known.
_TEXTS_SURE = 1.3


# A CPU of the catalogue: what does not multiply follows neither peak nor clock as closely; one operator of ours
# is as far off as a whole model of which it is a part is not.
_UNSCALED = 1.25


def _is_classical(op: str) -> bool:
    return op.startswith(("SVM", "Normalizer", "LabelEncoder", "Linear")) or op in _CLASSICAL


_CLASSICAL = frozenset({"Scaler", "Imputer", "Binarizer", "OneHotEncoder", "ZipMap", "ArrayFeatureExtractor"})


def operator_times(work: Workload, at: Ceilings) -> tuple[Floats, Bools]:
    """Seconds of each piece, and whether computing (not memory) limits it."""
    product = IS_PRODUCT[work.kind]
    each = at.precision.element_bytes / FLOAT_BYTES
    held = np.array([_TEMPORARIES.get(op, 0.0) for op in work.ops])[work.op]
    moved = (work["read"] + work["written"] * (1.0 + held)) * each + work["fixed"]
    computing = np.zeros(len(work.kind))
    for kinds, rule in _RULES:
        chosen = np.flatnonzero(kinds[work.kind])
        if chosen.size:
            computing[chosen] = rule(work, chosen, at)
    if at.precision.asked == "fp64":
        # Half as many elements fit a vector; there are no probes in fp64.
        computing = computing * 2.0
    if at.modelled:
        # Steps of a recurrence come one after the other: rows and directions alone are shared out. On two cores
        # an LSTM of one row gains 0.8 to 1.3 times one way and 1.3 to 2.0 both ways; of eight rows 1.9 to 2.0.
        shared = np.where(work.kind == Kind.RECURRENT, work["batch"] * work["m"], np.inf)
        # Texts come one after the other too.
        shared = np.where(whether(work, TEXT_WORK)[work.op], 1.0, shared)
        shared = np.where(work["shared_by"] > 0, work["shared_by"], shared)
        computing = computing / np.minimum(gain(computing, at.threads), np.maximum(shared, 1.0))
    few = (work["shared_by"] > 0) & (work["shared_by"] < at.threads)
    if few.any() and not at.modelled:
        computing = np.where(few, _by_few(work, computing, at), computing)
    weights = (work["weights"] * each + work["fixed_weights"]) * product
    # The probe of copies finds its two buffers where it left them. In a graph others were used meanwhile.
    kept = work["kept"] * each
    passing = moved - weights - kept
    streaming = passing / _copy(at, _OTHERS * passing) * _planes(work, at)
    # Caches of keys and values lie where the last run left them, and all of the model passed since.
    others = np.maximum(1.0, work.of_model(weights + kept))
    held_rate = _copy(at, others)
    if few.any():
        # Each thread streams its own part.
        by_few = _copy(at, others, threads=1) * np.maximum(work["shared_by"], 1.0)
        held_rate = np.where(few, np.minimum(held_rate, by_few), held_rate)
    one_row = (work["shared_by"] > 0) & product & (work["m"] <= 1.0)
    streaming += kept / np.where(one_row, held_rate * _EXPERT_READ_SHARE, held_rate)
    # A probe keeps its own weights in the nearest cache that holds them; a model's push each other out.
    together = _copy(at, np.maximum(1.0, work.of_model(weights)))
    probed = _copy(at, _probed_weights(work, weights, at))
    cold = np.maximum(0.0, weights / together - weights / probed) / _read_share(at)
    memory = streaming + cold
    # A product's traffic adds to its arithmetic: blocks are packed, computed and written in turn. Half of a 1x1
    # convolution's hides behind it (from memory, 16 to 96 channels: 5.0 ms and 11.1 ms, together 13.6 ms).
    pointwise = (work.kind == Kind.CONV) & (work["taps"] == 1)
    hidden = np.where(pointwise, 0.5 * np.minimum(computing, memory), 0.0)
    # Weights that are unpacked to floats are read ahead meanwhile.
    unpacking = whether(work, UNPACKED)[work.op] & product
    hidden = np.where(unpacking, np.minimum(computing, memory), hidden)
    times = np.where(product, computing + memory - hidden, np.maximum(computing, memory))
    return times * work["repeats"], computing > memory


def _by_few(work: Workload, computing: Floats, at: Ceilings) -> Floats:
    """Computing of all pieces where as many threads as can share a piece out take part, of a calibrated CPU."""
    useful = np.maximum(work["shared_by"], 1.0)
    seconds = computing * at.threads / useful
    chosen = np.flatnonzero((work["shared_by"] > 0) & IS_PRODUCT[work.kind])
    # Several threads at one product are not what one does, times their number.
    seconds[chosen] = _product(work, chosen, replace(at, threads=1, table=1, scale=1.0)) / useful[chosen]
    return seconds


def _read_share(at: Ceilings) -> float:
    """What reading alone reaches of a copy's rate, by one row times 64 MB of weights where measured."""
    rate = at.of("gemm.float32.t{T}.m1.n4096.k4096")
    if rate is None or at.modelled:
        return _READ_SHARE
    # Two operations for four bytes of weights.
    share = 2.0 * rate * at.scale / float(_copy(at, np.full(1, _WEIGHTS_BYTES))[0])
    return float(np.clip(share, _READ_SHARE, _MOST_READ))


_WEIGHTS_BYTES, _MOST_READ = 4.0 * 4096**2, 2.0  # of a copy half is writing


_FAR_PLANES = (14.0, 56.0)


def _planes(work: Workload, at: Ceilings) -> Floats:
    """How much longer than copies depthwise convolutions take for their bytes, by the side of a plane.

    A plane is walked on its own, and small ones end before what is read ahead pays off. Two probes tell, whose
    data the caches do not keep; between them the logarithm of the side counts.
    """
    thin = work.kind == Kind.DEPTHWISE
    rates = [at.of(f"conv.float32.t{{T}}.depthwise3x3far{side:.0f}") for side in _FAR_PLANES]
    near = at.of("conv.float32.t{T}.depthwise3x3")
    if near is None or None in rates or not thin.any():
        return np.ones(len(work.kind))
    # A probe's seconds by its bytes: 18 operations and two passes of 4 bytes an element.
    beyond = [
        (18.0 / rate - 18.0 / near * float(_rim(np.float64(side)))) * _copy(at, np.full(1, 1.5e8))[0] / 8.0
        for rate, side in zip(rates, _FAR_PLANES, strict=True)
        if rate is not None
    ]
    sides = np.log(np.sqrt(np.maximum(work["spatial"], 1.0)))
    factors = np.interp(sides, np.log(_FAR_PLANES), np.maximum(1.0, beyond))
    return np.where(thin & (work["stride"] <= 1), factors, 1.0)


def _rim(side: Floats | np.float64) -> Floats | np.float64:
    """How much longer a depthwise convolution takes for a plane's rims than at the probe's size."""
    return (1 + _RIM / side) / (1 + _RIM / _PROBE_SIDE)


def _copy(at: Ceilings, nbytes: Floats, threads: int | None = None) -> Floats:
    """Bytes per second of a copy by the bytes it touches; by all threads where none are named."""
    sizes, rates = tables(at.values).curve(threads or (at.threads if at.modelled else at.table))
    logarithms: Floats = np.interp(np.log(np.maximum(nbytes, 1.0)), sizes, rates)
    rate: Floats = np.exp(logarithms) * (at.scale if threads is None else 1.0)
    return rate


def _vector(work: Workload, chosen: npt.NDArray[np.int64], at: Ceilings) -> Floats:
    """Elements times the time of one, on as many threads as the operator uses."""
    one = np.array([_element_s(op, at, 1) for op in work.ops])[work.op[chosen]]
    many = np.array([_element_s(op, at, at.table) for op in work.ops])[work.op[chosen]]
    amount = work["elements"][chosen] * np.where(work.kind[chosen] == Kind.POOL, work["taps"][chosen], 1.0)
    kind = work.kind[chosen]
    rows = np.select([kind == which for which in _ROWS_OF_KIND], [work["rows"][chosen]] * len(_ROWS_OF_KIND))
    row_one, row_many = (_row_times(work, chosen, at, threads) for threads in (1, at.table))
    spans = np.where(kind == Kind.VECTOR, work["rows"][chosen] - 1.0, 0.0)
    more = work["batch"][chosen] - 1.0
    each = [(Kind.REDUCE, _SLICE_S), (Kind.MOVE, _TENSOR_S), (Kind.VECTOR, _PAIR_S)]
    slices = np.select([kind == which for which, _ in each], [cost * more for _, cost in each])
    alone = amount * one + rows * row_one + slices + _KERNEL_S + spans * _span_s(at, 1)
    # Tensors come one after the other, however many threads share each.
    serial = np.where(kind == Kind.REDUCE, 0.0, slices)
    shared = rows * row_many + spans * _span_s(at, at.table)
    together = (amount * many + shared) / at.scale + serial
    # What ran on one thread at the size of the probe uses more when it is much larger; but what was long enough
    # for threads, and still ran on one, does so at any size.
    grows = (amount > 4 * _PROBE) & (one * _PROBE < _SURELY_PARALLEL_S)
    grows &= ~whether(work, _ON_ONE_THREAD)[work.op[chosen]]
    together = np.where(grows, np.minimum(together, 1.15 * alone / at.threads), together)
    seconds: Floats = (
        alone if at.modelled else np.where(alone < _PARALLEL_S, alone, np.minimum(alone, together))
    )
    return seconds


# Weights in blocks are dequantised in one loop, however many there are (1.31.1, 4 million: no faster on two).
# So are votes summed, a row after the other (5.5 million: 10.9 ms on one thread, 10.1 on two).
_ON_ONE_THREAD = ("DequantizePacked", "DequantizeBlocks", VOTES)
# Elements of a row of the probe of short rows.
_SHORT_ROW = 32


def _span_s(at: Ceilings, threads: int) -> float:
    """Seconds of one more row in an operator that repeats an operand along it, its elements apart."""
    row, each = at.of("elementwise.AddShortRows.t{T}", threads), at.of("elementwise.AddBias.t{T}", threads)
    return _SPAN_S if row is None else max(0.0, row - _SHORT_ROW * (each or 0.0))


def _row_times(work: Workload, chosen: npt.NDArray[np.int64], at: Ceilings, threads: int) -> Floats:
    """Seconds that each piece takes for a row, or for a run that it copies, its elements apart."""
    kinds, lengths = work.kind[chosen], work["row"][chosen]
    times = np.zeros(len(chosen))
    for kind, name in _ROWS_OF_KIND.items():
        for index in np.unique(work.op[chosen][kinds == kind]).tolist():
            mine = (kinds == kind) & (work.op[chosen] == index)
            like = _ROWS_LIKE.get(work.ops[index], name)
            for same, one in ((lengths != 1, like), (lengths == 1, f"{like}Singles")):
                known = one if one in _ROW_S else like
                times[mine & same] = _row_s(known, work.ops[index], at, threads, lengths[mine & same])
    return times


def _row_s(name: str, op: str, at: Ceilings, threads: int, lengths: Floats) -> Floats:
    row, each = at.of(f"row.{name}.t{{T}}", threads), _element_s(op, at, threads)
    if row is None:
        return np.full(len(lengths), _ROW_S.get(name, _ROW_S["ReduceSum"]) / threads)
    if name in _CHAINED:
        return _chained_row_s(row, each, lengths)
    # Fewer elements than the probe's take no less than half of its row.
    beside = row - _ROW_LENGTHS.get(name, _SHORT_LENGTH) * each
    return np.maximum(beside, 0.5 * row - lengths * each)


# Their long rows wait for each sum, short ones do not: the logarithm between the two probes is within 1.5 of
# what ONNX Runtime 1.31 takes for rows of 4 to 1,024 (ReduceL1, ReduceL2, ArgMax; 1.7 for ReduceSumSquare).
_CHAINED = ("ReduceL2", "ArgMax")
_LONG_LENGTH = 1024
# Of a short row's time, whatever its length.
_ROW_SHARE = 0.6


def _chained_row_s(row: float, each: float, lengths: Floats) -> Floats:
    """What a row takes besides ``each`` for its elements: the time of one goes over from short rows to long."""
    known = (math.log(_SHORT_LENGTH), math.log(_LONG_LENGTH))
    element = np.interp(np.log(np.maximum(lengths, 1.0)), known, (row / _SHORT_LENGTH, each))
    shorter = row * (_ROW_SHARE + (1.0 - _ROW_SHARE) * lengths / _SHORT_LENGTH)
    beside: Floats = np.where(lengths < _SHORT_LENGTH, shorter, lengths * element) - lengths * each
    return beside


# Elements of a row of the probes of short rows, and of a run that they copy.
_SHORT_LENGTH = 8
_ROW_LENGTHS = {"Gather": 1, "Concat": 2, "ConcatSingles": 1}


_PROBE = 256 * 1024
_FAMILIES = ("elementwise.{}.t{{T}}", "move.{}.t{{T}}", "reduce.{}.t{{T}}.inner", "pool.{}.t{{T}}")


def _element_s(op: str, at: Ceilings, threads: int) -> float:
    """Seconds an element of an operator, looked up once for each calibration."""
    known = tables(at.values).elements
    if (op, threads) not in known:
        known[op, threads] = _found_element_s(op, at, threads)
    return known[op, threads]


def _found_element_s(op: str, at: Ceilings, threads: int) -> float:
    for name in (op, LIKE.get(op, op)):
        for family in _FAMILIES:
            value = at.of(family.format(name), threads)
            if value is not None:
                return value
    if op in TEXT_WORK:
        # No probe of them here: other cores are as fast as they hand an operator on.
        return _UNPROBED[op] * (at.dispatch_s / reference_dispatch_s() if at.modelled else 1.0)
    if op in _UNPROBED:
        # Experts are shared out among threads.
        return _UNPROBED[op] / (threads if op == ACTIVATION else 1)
    value = at.of("elementwise.Add.t{T}", threads)
    return _NO_OP if value is None else value


def _product(work: Workload, chosen: npt.NDArray[np.int64], at: Ceilings) -> Floats:
    flops = work["flops"][chosen]
    n, k, batch = (work[name][chosen] for name in ("n", "k", "batch"))
    shapes, which = work.shapes
    single = _rates(at, "gemm.float32", shapes)[which[chosen]]
    integers = np.zeros(len(chosen), dtype=np.bool_)
    for name, mine in _integer_families(work, chosen):
        single = np.where(mine, _rates(at, f"gemm.{name}", shapes)[which[chosen]], single)
        integers |= mine
    many = _rates(at, "bmm.float32", shapes)[which[chosen]]
    probed = (batch > 1) & (n * k <= _PROBED_BATCHED) & ~integers
    rate = np.where(probed, many, single)
    recurrent = whether(work, _RECURRENT)[work.op[chosen]]
    # The input's product is part of what a step of a recurrence was measured to take: here it is free.
    if recurrent.any():
        rate = np.where(recurrent, np.inf, rate)
    # Weights were packed when the session was made; what is computed is packed in each run.
    stored = (work["weights"][chosen] > 0) | (work["fixed_weights"][chosen] > 0)
    # One row reads the second factor as it lies.
    unpacked = stored | recurrent | (work["m"][chosen] <= 1)
    packed = np.where(unpacked, 0.0, np.maximum(batch, 1.0) * n * k)
    # One row has a kernel of its own, as wide as the result; more rows are multiplied by panels of columns.
    paneled = (work["m"][chosen] > 1) & ~integers & ~recurrent
    flops = flops * np.where(paneled, _panels(n), 1.0)
    seconds: Floats = (flops / rate + np.where(probed, 0.0, packed * _pack_s(at))) / at.scale
    return seconds


def _panels(columns: Floats) -> Floats:
    """Columns rounded up to whole panels, over the columns: 1 to 16 take the same time, 17 twice that."""
    filled: Floats = np.ceil(np.maximum(columns, 1.0) / _PANEL) * _PANEL / np.maximum(columns, 1.0)
    return filled


# Columns of the second factor that MLAS packs beside each other (onnxruntime/core/mlas/lib/sgemm.cpp,
# MlasSgemmCopyPackB).
_PANEL = 16.0


def _integer_families(
    work: Workload, chosen: npt.NDArray[np.int64]
) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    """Families of integer products that there are, and which of the pieces belong to each."""
    for index, op in enumerate(work.ops):
        if op in FAMILIES:
            mine = work.op[chosen] == index
            if mine.any():
                yield op, mine


# Elements of the second factor up to which batched products were measured as such.
_PROBED_BATCHED = 512 * 64


# An element is read and written; the larger half of a second factor lies in no near cache.
_PACKED_BYTES, _LARGE_BYTES = 8.0, 1.6e7


def _pack_s(at: Ceilings) -> float:
    """Seconds for an element of a second factor that is no constant: two cubes of the probes compared."""
    whole, packing = (
        at.of(f"{family}.float32.t{{T}}.m1024.n1024.k1024") for family in ("gemm", "gemm_dynamic")
    )
    if not whole or not packing:
        return 0.0
    # A few percent between the two probes, as disturbance makes, are as much as the packing itself.
    copied = 2.0 * _PACKED_BYTES / float(_copy(at, np.full(1, _LARGE_BYTES))[0])
    return float(min(max(0.0, 2.0 * 1024 * (1 / packing - 1 / whole)), copied))


def _rates(at: Ceilings, family: str, shapes: Floats) -> Floats:
    """FLOP/s of products by (m, n, k): measured neighbours in their logarithms, the near ones most."""
    near = _neighbours(at, family, shapes)
    if near is None:
        return np.full(len(shapes), 1e10)
    weight, _, rates = near
    mean: Floats = np.exp(weight @ rates)
    return mean


def _neighbours(at: Ceilings, family: str, shapes: Floats) -> tuple[Floats, Floats, Floats] | None:
    """Of each shape the weights of the probes, which sum to 1; their logarithms (base 2) and those of rates."""
    points = tables(at.values).points(family, at.table)
    if points is None:
        points = tables(at.values).points("gemm.float32", at.table)
    if points is None:
        return None
    where, rates = points
    shapes = np.log2(np.maximum(shapes, 1.0))
    # Beyond the probes the nearest edge holds: rates level off there, a slope carried on would not.
    shapes = np.clip(shapes, where.min(axis=0), where.max(axis=0))
    distance = ((shapes[:, None, :] - where[None, :, :]) ** 2 * _AXES).sum(axis=2)
    # At a probe its own rate has almost all the weight; 0.02 keeps the division defined.
    weight = 1.0 / (distance + 0.02) ** 2
    return weight / weight.sum(axis=1, keepdims=True), where, rates


def _probed_weights(work: Workload, weights: Floats, at: Ceilings) -> Floats:
    """Bytes of the weights that a product's rate was measured with: a long one's neighbours may have fewer."""
    probed = np.minimum(weights, _WEIGHTS_BYTES)
    chosen = np.flatnonzero((work.kind == Kind.MATMUL) & (weights > 0))
    if not chosen.size:
        return probed
    shapes, which = work.shapes
    families = [("float32", np.ones(len(chosen), dtype=np.bool_)), *_integer_families(work, chosen)]
    elements = np.maximum(work["n"][chosen] * work["k"][chosen], 1.0)
    for name, mine in families:
        near = _neighbours(at, f"gemm.{name}", shapes)
        if near is not None:
            weight, where, _ = near
            sizes = np.exp2(weight @ where[:, 1:].sum(axis=1))[which[chosen]]
            share = np.minimum(1.0, sizes / elements)
            probed[chosen[mine]] = np.minimum(weights[chosen] * share, _WEIGHTS_BYTES)[mine]
    return probed


# Rows matter most: they decide whether weights are used once or often.
_AXES = np.array([2.0, 0.5, 0.5])


def _convolution(work: Workload, chosen: npt.NDArray[np.int64], at: Ceilings) -> Floats:
    taps, stride, batch = (work[name][chosen] for name in ("taps", "stride", "batch"))
    channels = work["k"][chosen] / np.maximum(taps, 1.0)
    thin = work.kind[chosen] == Kind.DEPTHWISE
    positions = work["spatial"][chosen]
    classes = (
        (thin & (taps > 16), "depthwise5x5"),
        (thin & (stride > 1), "depthwise3x3s2"),
        (thin, "depthwise3x3"),
        (batch > 1, "group32"),
        ((channels <= 4) & (taps > 16), "stem7x7s2"),
        (channels <= 4, "stem3x3s2"),
        (taps == 1, "1x1"),
        (taps > 16, "5x5"),
        (stride > 1, "3x3s2"),
    )
    names = np.select([mask for mask, _ in classes], [name for _, name in classes], default="3x3")
    small = np.isin(names, ("3x3", "1x1", "3x3s2")) & (positions <= 150)
    names = np.where(small, np.where(names == "1x1", "1x1small", "3x3small"), names)
    # A class that an older calibration did not measure takes the rate of plain 3x3.
    known = {name: at.of(f"conv.float32.t{{T}}.{name}") for name in np.unique(names).tolist()}
    general = at.of("conv.float32.t{T}.3x3") or 1e10
    rate = np.array([known[name] or general for name in names.tolist()]) * at.scale
    integers = np.zeros(len(chosen), dtype=np.bool_)
    for family, mine in _integer_families(work, chosen):
        integers |= mine
        rate = np.where(mine, _integer_rates(at, family, names, rate), rate)
    if integers.any():
        shapes = IntegerShapes(lambda name: at.of(f"conv.u8s8.t{{T}}.{name}"))
        slower = shapes.factors(names, work["n"][chosen], work["k"][chosen], taps)
        rate = np.where(integers, rate / slower, rate)
    # Channels are computed in blocks; the rims of small images cost depthwise convolutions more.
    filled = _blocks(work["n"][chosen]) * np.where(channels > _BLOCK / 2, _blocks(channels), 1.0)
    padded = np.where((batch == 1) & ~thin & ~integers, filled, 1.0)
    rim = np.where(thin & ~integers, _rim(np.sqrt(np.maximum(positions, 1.0))), 1.0)
    seconds: Floats = work["flops"][chosen] * padded * rim / rate
    return seconds


def _integer_rates(at: Ceilings, family: str, names: npt.NDArray[np.str_], floats: Floats) -> Floats:
    """Rates of convolutions on integers by class, from those of floats where they were not measured."""
    gain = _ratio(at, "conv.u8s8.t{T}.3x3", "conv.float32.t{T}.3x3")
    # Weights without a sign have kernels of their own, measured for a few classes.
    slower = _ratio(at, "conv.u8u8.t{T}.3x3", "conv.u8s8.t{T}.3x3")
    rates: dict[str, float] = {}
    for name in np.unique(names).tolist():
        signed = (at.of(f"conv.u8s8.t{{T}}.{name}") or 0.0) * at.scale
        own = (at.of(f"conv.u8u8.t{{T}}.{name}") or 0.0) * at.scale
        rates[name] = (own or signed * slower) if family == "u8u8" else signed
    known = np.array([rates[name] for name in names.tolist()])
    return np.asarray(np.where(known > 0, known, floats * gain), dtype=np.float64)


def _ratio(at: Ceilings, one: str, other: str) -> float:
    first, second = at.of(one), at.of(other)
    return first / second if first and second else 1.0


# Channels of a block in ONNX Runtime's NCHWc layout with AVX-512; the side of the depthwise probe's image.
_BLOCK, _PROBE_SIDE, _RIM = 16.0, 56.0, 6.0


def _blocks(channels: Floats) -> Floats:
    """Channels rounded up to whole blocks, over the channels."""
    filled: Floats = np.ceil(np.maximum(channels, 1.0) / _BLOCK) * _BLOCK / np.maximum(channels, 1.0)
    return filled


def _recurrence(work: Workload, chosen: npt.NDArray[np.int64], at: Ceilings) -> Floats:
    steps, rows, gates, hidden = (work[name][chosen] for name in ("steps", "m", "n", "k"))
    seconds = np.zeros(len(chosen))
    for index, op in enumerate(work.ops):
        mine = work.op[chosen] == index
        if mine.any():
            each = _step_s(at, op, hidden[mine], rows[mine], gates[mine])
            seconds[mine] = steps[mine] * each
    return seconds


def _step_s(at: Ceilings, op: str, hidden: Floats, rows: Floats, gates: Floats) -> Floats:
    points = tables(at.values).steps(op, at.table)
    # A step of a recurrence: input and state, each 2 operations a weight, as the probe counts them.
    flops = 4.0 * rows * gates * hidden
    if points is None:
        return flops / (at.of("gemm.float32.t{T}.m1.n1024.k1024") or 1e10)
    measured, rates = points
    shapes = np.clip(np.log2(np.stack([hidden, rows], axis=1)), measured.min(axis=0), measured.max(axis=0))
    distance = ((shapes[:, None, :] - measured[None, :, :]) ** 2).sum(axis=2)
    weight = 1.0 / (distance + 0.02) ** 2
    seconds: Floats = flops / np.exp((weight * rates).sum(axis=1) / weight.sum(axis=1))
    return seconds


def _tree(work: Workload, chosen: npt.NDArray[np.int64], at: Ceilings) -> Floats:
    nodes, (probed, cached) = work["n"][chosen], _TREE_NODES
    doublings = np.log2(np.clip(nodes, probed, cached) / probed), np.log2(np.maximum(nodes / cached, 1.0))
    far = 1.0 + sum(growth * each for growth, each in zip(_TREE_GROWTH, doublings, strict=True))
    steps = work["flops"][chosen]
    one, many = _step_of_tree(at, 1, steps), _step_of_tree(at, at.table, steps)
    alone: Floats = steps * far * (_TREE_VISIT_S if one is None else one)
    if at.modelled:
        return alone
    if many is not None:
        shared: Floats = steps * far * many / at.scale
        return shared
    useful = np.minimum(at.threads, np.maximum(work["m"][chosen], 1.0))
    seconds: Floats = np.where(alone < _PARALLEL_S, alone, alone / useful)
    return seconds


def _step_of_tree(at: Ceilings, threads: int, steps: Floats) -> Floats | None:
    """Seconds of a comparison by how many there are: the processor learns the branches of a few by heart."""
    points = tables(at.values).trees(threads)
    if points is None:
        return None
    order = np.argsort(points[0][:, 0])
    measured, times = points[0][order, 0], points[1][order]
    seconds: Floats = np.exp(np.interp(np.log2(np.maximum(steps, 1.0)), measured, times))
    return seconds


_RECURRENT = ("LSTM", "GRU", "RNN")
_RULES = (
    (among((Kind.VECTOR, Kind.REDUCE, Kind.NORM, Kind.SOFTMAX, Kind.MOVE, Kind.POOL)), _vector),
    (among((Kind.MATMUL,)), _product),
    (among((Kind.CONV, Kind.DEPTHWISE)), _convolution),
    (among((Kind.RECURRENT,)), _recurrence),
    (among((Kind.TREE,)), _tree),
)
