"""Calls whose inputs and outputs are already where they are wanted, and what they take undisturbed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from analyzer.errors import AnalyzerError, MeasurementError
from analyzer.measurement import tensor_files
from analyzer.measurement.session import SessionSettings, create, explained
from analyzer.measurement.statistics import quantile

# Of fewer runs than four there is no quartile; more than 2000 say nothing new of a call of microseconds.
_LEAST_RUNS, _MOST_RUNS = 4, 2000
# Reading a thread's clock takes most of a microsecond.
_LONG_S = 50e-6
# Windows counts a thread's time in ticks of 15.6 ms.
_HAS_THREAD_CLOCK = sys.platform != "win32"
NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundSession:
    """A session with inputs and outputs bound.

    Attributes:
        call: Runs it once; on a GPU it ends with the GPU idle.
        output_shapes: Of what it writes; empty tuples for what is no tensor, nothing where one is optional.
        inputs: What it reads, by name (``onnxruntime.OrtValue``).
    """

    session: Any
    call: Callable[[], object]
    output_shapes: tuple[tuple[int, ...], ...]
    inputs: Mapping[str, Any] = field(default_factory=dict)


def bind(model: bytes, feeds: Mapping[str, Any], settings: SessionSettings) -> BoundSession:
    """Bind inputs and outputs to memory of the session's device, as nodes inside a graph have them.

    Raises:
        MeasurementError: ONNX Runtime refuses the model or the provider.
    """
    device_id = int(settings.cuda.get("device_id", "0"))
    return bind_session(create(model, settings), feeds, settings.provider, device_id)


def bind_session(
    session: Any,
    feeds: Mapping[str, Any],
    provider: str,
    device_id: int = 0,
    *,
    in_place: Mapping[str, str] = NOTHING,
) -> BoundSession:
    """The same for a session that is there; the model has run three times afterwards.

    The outputs of the first run stay bound, so that every address is the same from then on: a CUDA graph, which
    ONNX Runtime records within the first call after two ordinary runs, holds those addresses.

    Raises:
        MeasurementError: The model cannot run with these inputs.
        InputError: An input that cannot be bound.
    """
    if any(isinstance(value, list) for value in feeds.values()):
        raise MeasurementError("inputs that are sequences cannot be bound", hint="run it with copies")
    device = "cuda" if provider == "cuda" else "cpu"
    binding = session.io_binding()
    outputs = session.get_outputs()
    names = [output.name for output in outputs]
    try:
        read = _on_the_host(session.get_inputs(), session.get_input_memory_infos())
        written = _on_the_host(outputs, session.get_output_memory_infos())
        given = {
            name: tensor_files.to_ortvalue(array, "cpu" if name in read else device, device_id)
            for name, array in feeds.items()
        }
        for name, value in given.items():
            binding.bind_ortvalue_input(name, value)
        shared = {present: given[past] for past, present in in_place.items()}
        for name in names:
            if name in shared:
                binding.bind_ortvalue_output(name, shared[name])
            else:
                # Without an address at first: the sizes of outputs may depend on the inputs' values.
                at = ("cpu", 0) if name in written else (device, device_id)
                binding.bind_output(name, *at)
        session.run_with_iobinding(binding)
        # Python crashes where it asks a binding for an optional that is empty: such outputs stay as they are.
        readable = not any(output.type.startswith("optional(") for output in outputs)
        values = binding.get_outputs() if readable else ()
        for name, value in zip(names, values, strict=False):
            binding.bind_ortvalue_output(name, value)
        # CUDAExecutionProvider::OnRunEnd (core/providers/cuda/cuda_execution_provider.cc) captures after two
        # runs.
        for _ in range(2):
            session.run_with_iobinding(binding)
    except AnalyzerError:
        raise
    except Exception as error:
        raise explained(error) from None
    shapes = tuple(tuple(value.shape()) if value.is_tensor() else () for value in values)
    return BoundSession(
        session=session, call=lambda: session.run_with_iobinding(binding), output_shapes=shapes, inputs=given
    )


def _on_the_host(ends: Sequence[Any], places: Sequence[Any]) -> frozenset[str]:
    """Inputs or outputs that a session reads or writes in the host's memory: elsewhere each run copies them."""
    return frozenset(end.name for end, place in zip(ends, places, strict=True) if place.name == "Cpu")


def undisturbed_seconds(
    call: Callable[[], object], seconds: float, *, alone: bool = False, has_run: bool = False
) -> float:
    """Lower quartile of as many calls as fit in about so many seconds: what an undisturbed machine does.

    ``alone`` says whether all work is done by the thread that calls. Then the processor's time of that thread
    counts where it is less: what others run on its core meanwhile is not in it. ``has_run`` says whether it was
    called twice before.
    """
    # ONNX Runtime takes memory anew in the first two runs.
    for _ in range(0 if has_run else 2):
        call()
    samples: list[float] = []
    used = time.thread_time if alone and _HAS_THREAD_CLOCK else time.perf_counter
    begin = time.perf_counter()
    while True:
        before = used()
        start = time.perf_counter()
        call()
        end = time.perf_counter()
        worked = used() - before
        samples.append(min(end - start, worked) if end - start > _LONG_S else end - start)
        if len(samples) >= _MOST_RUNS or (end - begin > seconds and len(samples) >= _LEAST_RUNS):
            return quantile(samples, 0.25)
