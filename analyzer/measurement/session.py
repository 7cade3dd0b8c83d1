"""Sessions of ONNX Runtime: the provider that was asked for, or an error that says why not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from analyzer.errors import MeasurementError
from analyzer.measurement.cuda_libraries import PROVIDER, cuda_trouble, load_cuda_libraries
from analyzer.measurement.error_explanations import explained

if TYPE_CHECKING:
    from analyzer.measurement.request import MeasureRequest

__all__ = ["SessionSettings", "create", "explained", "settings_for"]

PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": PROVIDER}
WEIGHTS_APART = ".data"
# Of the optimised graph: larger weights go to a file beside it. Protobuf ends at 2 GB, and who reads the graph
# alone need not read them.
_WEIGHTS_APART_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """What a session is created with.

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
    """A session of a file or a serialized model that runs on the provider of the settings.

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
    """The settings that a request asks for; ``changes`` replace single fields."""
    cuda = {"device_id": str(request.device_id), "use_tf32": "1" if request.tf32 else "0"}
    values: dict[str, Any] = {
        "provider": request.provider,
        "threads": request.threads or 0,
        "spinning": request.spinning,
        "cuda": cuda if request.provider == "cuda" else {},
    }
    return SessionSettings(**{**values, **changes})
