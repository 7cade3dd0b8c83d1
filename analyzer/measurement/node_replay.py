"""Timing a node alone where its time is below the profiler's clock.

The node is taken out of the optimized graph with inputs of the shapes that the profile shows, put many times
into one model, and timed by the difference between many and few: the call's own cost and the clock's tick
fall away.
Its inputs are in cache as they are in the graph, where the node before has just written them; weights are read
from memory where the model's weights do not fit into the last cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyzer.errors import AnalyzerError
from analyzer.measurement import tensor_files
from analyzer.measurement.probes import BLOCKED, MICROSOFT, Probe, feeds_of, model_of
from analyzer.measurement.profile import RawTime
from analyzer.measurement.session import SessionSettings, bind, undisturbed_seconds

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

# The profiler's tick is 1 microsecond and its own cost is 1 to 3 more: below this they rule.
BELOW_CLOCK_S = 5e-6
# Copies of the node in the two models: 32 between them lift a node of 0.1 us above the clock.
_FEW, _MANY = 2, 34
_EACH_SECONDS = 0.02
_DOMAINS = {"": "", "ai.onnx": "", MICROSOFT: MICROSOFT, BLOCKED: BLOCKED}
# Operators whose integer inputs say how large the result is: made-up values would ask for something else.
_SHAPED_BY_VALUES = frozenset(
    {
        *("Reshape", "Expand", "Slice", "Tile", "Range", "ConstantOfShape", "Resize", "Pad", "TopK", "Split"),
        *("OneHot", "Squeeze", "Unsqueeze", "Upsample", "MaxUnpool", "NonZero", "Compress", "Unique"),
        "NonMaxSuppression",
    }
)
# Smaller weights stay in the first cache whatever else runs; a larger set than this of copies would only take
# time.
_COLD_BYTES = 16_384
_MOST_COLD_BYTES = 64 << 20


def replay(
    optimized: Path,
    raw: Sequence[RawTime],
    settings: SessionSettings,
    *,
    seconds: float,
    tick: Callable[[float], None] | None = None,
) -> dict[str, float]:
    """Time these nodes alone; nodes of the same type, shapes and attributes share one measurement.

    Weights lie beside ``optimized``; ``raw`` has the nodes' shapes. Threads and spinning are those of the
    measured session. It stops after so many ``seconds``.

    Returns:
        Seconds by node name, of those that could be replayed.
    """
    import onnx

    model = onnx.load(optimized, load_external_data=False)
    by_name = {node.name: node for node in model.graph.node}
    source = _Source(model, optimized.parent)
    known: dict[object, float | None] = {}
    times: dict[str, float] = {}
    deadline = time.perf_counter() + seconds
    for number, profiled in enumerate(raw):
        node = by_name.get(profiled.name)
        probe = None if node is None else source.probe(node, profiled)
        if probe is None:
            continue
        shapes = tuple(None if array is None else (array.dtype.str, array.shape) for array in probe.inputs)
        attributes = tuple(sorted((name, repr(value)) for name, value in probe.attributes.items()))
        signature = (probe.domain, probe.op_type, attributes, shapes, tuple(sorted(probe.constants)))
        if signature not in known:
            if time.perf_counter() > deadline:
                continue
            known[signature] = _time(probe, profiled, settings, cold=source.cold)
        if tick is not None:
            tick(number / len(raw))
        seconds_once = known[signature]
        if seconds_once is not None:
            times[profiled.name] = seconds_once * profiled.calls
    return times


class _Source:
    """Nodes of an optimized model as probes."""

    def __init__(self, model: Any, folder: Path) -> None:
        self._initializers = {tensor.name: tensor for tensor in model.graph.initializer}
        self._opset = next((item.version for item in model.opset_import if item.domain in ("", "ai.onnx")), 20)
        self._folder = folder
        stored = sum(
            next(
                (int(entry.value) for entry in tensor.external_data if entry.key == "length"), tensor.ByteSize()
            )
            for tensor in model.graph.initializer
        )
        self.cold = stored > last_cache_bytes()

    def probe(self, node: Any, raw: RawTime) -> Probe | None:
        """Return the node with inputs of the right shapes; None where they cannot be made up."""
        from onnx import helper

        if node.domain not in _DOMAINS or any(
            bool(attribute.HasField("g") or attribute.graphs) for attribute in node.attribute
        ):
            return None
        inputs = self._inputs(node, raw)
        if inputs is None:
            return None
        constants = frozenset(index for index, name in enumerate(node.input) if name in self._initializers)
        return Probe(
            key=node.op_type,
            amount=1.0,
            per="time",
            op_type=node.op_type,
            domain=_DOMAINS[node.domain],
            opset=self._opset,
            inputs=inputs,
            constants=constants,
            attributes={item.name: helper.get_attribute_value(item) for item in node.attribute},
            outputs=len(node.output),
        )

    def _inputs(self, node: Any, raw: RawTime) -> list[Array | None] | None:
        """Constants as they are, the rest made up; packed weights are missing from the profile's list."""
        import numpy as np
        from onnx import numpy_helper

        # Constant weights of products are packed when the session is created and missing from the profile.
        shown = list(raw.inputs)
        generator = np.random.default_rng(3)
        arrays: list[Array | None] = []
        for name in node.input:
            if not name:
                arrays.append(None)
            elif name in self._initializers:
                array = numpy_helper.to_array(self._initializers[name], base_dir=str(self._folder))
                if shown and shown[0][1] == array.shape:
                    shown.pop(0)
                arrays.append(array)
            elif not shown:
                return None
            else:
                kind, shape = shown.pop(0)
                if kind.startswith("int") and arrays and node.op_type in _SHAPED_BY_VALUES:
                    return None
                arrays.append(tensor_files.random_tensor(kind, shape, generator))
        return arrays


def _time(probe: Probe, raw: RawTime, settings: SessionSettings, *, cold: bool) -> float | None:
    """Seconds of one execution; None where it cannot run alone or gives another shape than in the graph."""
    few, many = _FEW, _MANY
    weights = sum(
        array.nbytes
        for index, array in enumerate(probe.inputs)
        if array is not None and index in probe.constants
    )
    fresh = cold and weights >= _COLD_BYTES
    if fresh:
        many = _FEW + max(8, min(2 * last_cache_bytes(), _MOST_COLD_BYTES) // weights)
    times = []
    for copies in (few, many):
        repeated = probe.repeated(copies, fresh_constants=fresh)
        try:
            # No optimisation: of equal nodes side by side all but one would be taken out.
            alone = replace(settings, optimize=False, profile_prefix=None, optimized_path=None)
            bound = bind(model_of(repeated), feeds_of(repeated), alone)
            expected = tuple(shape for _, shape in raw.outputs)
            if bound.output_shapes[: len(expected)] != expected:
                raise ValueError("another shape than in the graph")
            call = bound.call
        except (AnalyzerError, ValueError, TypeError):
            return None
        times.append(undisturbed_seconds(call, _EACH_SECONDS))
    return max(1e-9, (times[1] - times[0]) / (many - few))


def last_cache_bytes() -> int:
    """Size of the last cache; 32 MiB where the system does not tell."""
    sizes = [32 << 20]
    # Linux alone has this folder; elsewhere the guess stands.
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text(encoding="ascii").strip()
        unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
        digits = text.rstrip("KM")
        if digits.isdigit():
            sizes.append(int(digits) * unit)
    return max(sizes[1:] or sizes)
