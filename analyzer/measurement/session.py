"""Sessions of ONNX Runtime: the requested provider or the reason it is missing, and calls on bound inputs."""

from __future__ import annotations

import re
import sys
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from analyzer.errors import AnalyzerError, MeasurementError, MemoryEndedError, ShapesRefusedError
from analyzer.measurement import tensor_files
from analyzer.measurement.cuda_libraries import (
    CUDA_PIP_LINE,
    PROVIDER,
    cuda_trouble,
    driver_hint,
    load_cuda_libraries,
)
from analyzer.measurement.timing_loops import quantile

if TYPE_CHECKING:
    from analyzer.measurement.request import MeasureRequest


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("onnxruntime_errors.toml").read_text(encoding="utf-8"))


def explained(error: Exception) -> AnalyzerError:
    """Return ONNX Runtime's exception in plain words; its own message stays readable at the end."""
    if isinstance(error, AnalyzerError):
        return error
    text, tables = plain(str(error)), _tables()
    for row in tables["memory"]:
        if match := re.search(row["pattern"], text):
            return MemoryEndedError(_sentence(row["meaning"], match, text), hint=tables["hints"]["memory"])
    for row in tables["errors"]:
        if match := re.search(row["pattern"], text, re.DOTALL):
            refused = re.search("|".join(tables["shapes"]), text, re.IGNORECASE)
            kind = ShapesRefusedError if refused else MeasurementError
            return kind(_sentence(row["meaning"], match, text), hint=row.get("hint") or _hint(row["hint_of"]))
    return MeasurementError(f"ONNX Runtime could not run the model: {_short(text)}", hint="use --no-run")


def _hint(name: str) -> str:
    """Return a hint that several errors share, or that depends on the machine."""
    if name == "driver":
        return driver_hint()
    return CUDA_PIP_LINE if name == "libraries" else str(_tables()["hints"][name])


def _sentence(sentence: str, match: re.Match[str], text: str) -> str:
    groups = ((group or "").strip() for group in match.groups())
    return f"{sentence.format(*groups).replace(' (node )', '')} (ONNX Runtime: {_short(text)})"


# A function as C++ prints it: perhaps a return type, then onnxruntime::Something::name(arguments).
_SIGNATURE = re.compile(
    r"(?:(?<!\S)(?:static |virtual )?(?:\w+\*|void|bool|[\w:]+::[\w:<>*& ,]+?)\s+)?"
    r"onnxruntime::[\w:~<>]+\([^()]*\)(?: const)?(?: \[with [^\]]*\])?\s*"
)


def plain(text: str) -> str:
    """ONNX Runtime's message without status prefixes, source positions, C++ signatures, colours, host name."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    text = re.sub(r"\[ONNXRuntimeError\] : \d+ : \w+ : ", "", text.strip())
    text = re.sub(r"^Load model from \S+ (?:failed:)?\s*", "", text)
    text = re.sub(r" with the cudnn frontend json:.*", "", text, flags=re.DOTALL)
    # What CUDA_CALL appends (core/providers/cuda/cuda_call.cc) names the host: it must not get into a report.
    text = re.sub(r" ?; GPU=-?\d+ ; hostname=[^\n]*", "", text)
    text = re.sub(r"(?<!\S)\S+\.(?:cc|h|cu|cpp|hpp):\d+ (?:[\w:]+ )?", "", text)
    text = re.sub(_SIGNATURE, "", text)
    text = re.sub(r"(?<!\S)::<lambda\(\)>\s*", "", text)
    return re.sub(r"\s+", " ", text).strip()


def _short(text: str, limit: int = 400) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


__all__ = ["SessionSettings", "create", "explained", "settings_for"]

PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": PROVIDER}
WEIGHTS_APART = ".data"
# Of the optimised graph: larger weights go to a file beside it. Protobuf ends at 2 GB, and who reads the graph
# alone need not read them.
_WEIGHTS_APART_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """The settings of a session.

    Attributes:
        provider: ``cpu`` or ``cuda`` (with the CPU behind it).
        threads: Intra-op threads, 0 for ONNX Runtime's default.
        spinning: Whether worker threads spin between operators.
        optimize: All graph optimizations, those of level 1 alone (``basic``), or none.
        profile_prefix: Where to write the profile; None writes none.
        optimized_path: Where to save the optimized graph; None saves none.
        cuda: Options of the CUDA provider.
        entries: Further entries of the session's configuration.
    """

    provider: str = "cpu"
    threads: int = 0
    spinning: bool = True
    optimize: bool | Literal["basic"] = True
    profile_prefix: Path | None = None
    optimized_path: Path | None = None
    cuda: Mapping[str, str] = field(default_factory=dict)
    entries: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSide(SessionSettings):
    """A model's file, and how a session of it is created."""

    model: Path


def create(model: Path | bytes, settings: SessionSettings) -> Any:
    """Return a session of a file or a serialized model that runs on the provider of the settings.

    Raises:
        MeasurementError: ONNX Runtime refuses the model, or the CUDA provider is not there; never a silent
            fall-back to the CPU.
    """
    import onnxruntime as ort

    # What CUDA refuses is raised or found out below; the log would only repeat it on the user's screen.
    ort.set_default_logger_severity(4 if settings.provider == "cuda" else 3)
    if settings.provider == "cuda":
        load_cuda_libraries(ort)
    providers: list[Any] = [(PROVIDERS["cuda"], dict(settings.cuda))] if settings.provider == "cuda" else []
    # ``enable_fallback=0`` and ``disable_fallback``: Python's wrapper
    # (onnxruntime/capi/onnxruntime_inference_collection.py) would make the session anew on the CPU where CUDA
    # fails, and only print that.
    source = model if isinstance(model, bytes) else str(model)
    try:
        session = ort.InferenceSession(
            source, _options(ort, settings), providers=[*providers, PROVIDERS["cpu"]], enable_fallback=0
        )
    except Exception as error:
        raise explained(error) from None
    session.disable_fallback()
    # A CUDA provider whose libraries are missing is left out with an error in the log, not with an exception.
    if PROVIDERS[settings.provider] not in session.get_providers():
        message, hint = cuda_trouble()
        raise MeasurementError(message, hint=hint)
    return session


def _options(ort: Any, settings: SessionSettings) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    # One node after the other: times of nodes that run at once would not add up.
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads = settings.threads
    levels = ort.GraphOptimizationLevel
    options.graph_optimization_level = (
        levels.ORT_ENABLE_BASIC
        if settings.optimize == "basic"
        else levels.ORT_ENABLE_ALL
        if settings.optimize
        else levels.ORT_DISABLE_ALL
    )
    for name, value in settings.entries.items():
        options.add_session_config_entry(name, value)
    if not settings.spinning:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if settings.profile_prefix is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(settings.profile_prefix)
    if settings.optimized_path is not None:
        options.optimized_model_filepath = str(settings.optimized_path)
        name = "session.optimized_model_external_initializers_"
        options.add_session_config_entry(f"{name}file_name", settings.optimized_path.name + WEIGHTS_APART)
        options.add_session_config_entry(f"{name}min_size_in_bytes", str(_WEIGHTS_APART_BYTES))
    return options


def settings_for(request: MeasureRequest, **changes: Any) -> SessionSettings:
    """Return the settings that a request asks for; ``changes`` replace single fields."""
    cuda = {"device_id": str(request.device_id), "use_tf32": "1" if request.tf32 else "0"}
    values: dict[str, Any] = {
        "provider": request.provider,
        "threads": request.threads or 0,
        "spinning": request.spinning,
        "cuda": cuda if request.provider == "cuda" else {},
    }
    return SessionSettings(**{**values, **changes})


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
    """Return the same for a session that is there; the model has run three times afterwards.

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
    """Return inputs or outputs in the host's memory: elsewhere each run would copy them."""
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
