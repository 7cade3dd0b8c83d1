"""Sessions of ONNX Runtime: the provider that was asked for or an error, its messages in plain words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyzer.errors import MeasurementError

if TYPE_CHECKING:
    from analyzer.runtime.measurement import MeasureRequest

CUDA_PIP_LINE = 'pip install "onnxruntime-gpu[cuda,cudnn]"'
PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
_WEIGHTS_APART_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """What a session is created with.

    Attributes:
        provider: ``cpu`` or ``cuda`` (with the CPU behind it).
        threads: Intra-op threads, 0 for ONNX Runtime's default.
        spinning: Whether worker threads spin between operators.
        optimize: All graph optimizations, or none.
        profile_prefix: Where to write the profile; None writes none.
        optimized_path: Where to save the optimized graph; None saves none.
        cuda: Options of the CUDA provider.
    """

    provider: str = "cpu"
    threads: int = 0
    spinning: bool = True
    optimize: bool = True
    profile_prefix: Path | None = None
    optimized_path: Path | None = None
    cuda: Mapping[str, str] | None = None


def create(model: Path | bytes, settings: SessionSettings) -> Any:
    """A session that runs on the provider asked for.

    Args:
        model: The file, or a serialized model.
        settings: See there.

    Raises:
        MeasurementError: ONNX Runtime refuses the model, or the CUDA provider is not there; never a silent
            fall-back to the CPU.
    """
    import onnxruntime as ort

    ort.set_default_logger_severity(3)
    if settings.provider == "cuda":
        _load_cuda_libraries(ort)
    providers: list[Any] = (
        [(PROVIDERS["cuda"], dict(settings.cuda or {}))] if settings.provider == "cuda" else []
    )
    source = model if isinstance(model, bytes) else str(model)
    try:
        session = ort.InferenceSession(
            source, _options(ort, settings), providers=[*providers, PROVIDERS["cpu"]], enable_fallback=0
        )
    except Exception as error:
        raise explained(error) from None
    session.disable_fallback()
    if PROVIDERS[settings.provider] not in session.get_providers():
        message, hint = cuda_trouble()
        raise MeasurementError(message, hint=hint)
    return session


def _options(ort: Any, settings: SessionSettings) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads = settings.threads
    levels = ort.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if settings.optimize else levels.ORT_DISABLE_ALL
    if not settings.spinning:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if settings.profile_prefix is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(settings.profile_prefix)
    if settings.optimized_path is not None:
        options.optimized_model_filepath = str(settings.optimized_path)
        name = "session.optimized_model_external_initializers_"
        options.add_session_config_entry(f"{name}file_name", f"{settings.optimized_path.name}.data")
        options.add_session_config_entry(f"{name}min_size_in_bytes", str(_WEIGHTS_APART_BYTES))
    return options


def settings_for(request: MeasureRequest, **changes: Any) -> SessionSettings:
    """The settings that a request asks for; ``changes`` replace single fields."""
    cuda = {"device_id": str(request.device_id), "use_tf32": "1" if request.tf32 else "0"}
    values: dict[str, Any] = {
        "provider": request.provider,
        "threads": request.threads or 0,
        "spinning": request.spinning,
        "cuda": cuda if request.provider == "cuda" else None,
    }
    return SessionSettings(**{**values, **changes})


def _load_cuda_libraries(ort: Any) -> None:
    if PROVIDERS["cuda"] not in ort.get_available_providers():
        message = f"this build of ONNX Runtime ({ort.__version__}) has no CUDA provider"
        raise MeasurementError(message, hint=f"install the GPU build: {CUDA_PIP_LINE}")
    if hasattr(ort, "preload_dlls"):
        import contextlib
        import io

        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            ort.preload_dlls()


def cuda_trouble() -> tuple[str, str]:
    """Why the CUDA provider did not load, naming the library that is missing, and what to do."""
    driver = _driver_trouble()
    if driver:
        return driver, "install or update the NVIDIA driver, or profile the CPU alone with --gpu none"
    missing = missing_libraries()
    if missing:
        return f"the CUDA provider cannot load: {', '.join(missing)} not found", CUDA_PIP_LINE
    return "the CUDA provider did not load, though its libraries are there", CUDA_PIP_LINE


def _driver_trouble() -> str:
    import pynvml

    try:
        pynvml.nvmlInit()
        version = pynvml.nvmlSystemGetCudaDriverVersion()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        return f"no NVIDIA driver answers ({error})"
    if count == 0:
        return "the NVIDIA driver finds no GPU"
    needed = _cuda_version_needed()
    if needed and version // 1000 < needed:
        return f"the NVIDIA driver supports CUDA {version // 1000}, this build of ONNX Runtime needs {needed}"
    return ""


def _cuda_version_needed() -> int | None:
    try:
        from onnxruntime.capi import build_and_package_info
    except ImportError:
        return None
    version = str(getattr(build_and_package_info, "cuda_version", ""))
    return int(version.split(".")[0]) if version[:1].isdigit() else None


def missing_libraries() -> tuple[str, ...]:
    """Shared libraries that the CUDA provider wants and the dynamic linker does not find."""
    import ctypes

    import onnxruntime as ort

    folder = Path(ort.__file__).parent / "capi"
    library = folder / "libonnxruntime_providers_cuda.so"
    if not library.exists():
        return (library.name,)
    try:
        ctypes.CDLL(str(folder / "libonnxruntime_providers_shared.so"))
        ctypes.CDLL(str(library))
    except OSError as error:
        found = re.findall(r"(lib[\w.+-]+\.so[\w.]*)", str(error))
        return (found[0],) if found else (str(error),)
    return ()


_HINT_MEMORY = "use a smaller --batch, or --no-run for predictions alone"
_HINT_OPSET = "export with a lower --opset, or install a newer onnxruntime"
# What ONNX Runtime 1.31 says -> (what it means, what to do); groups of the pattern fill the sentence.
_EXPLANATIONS: tuple[tuple[str, str, str], ...] = (
    (
        r"Unsupported model IR version: (\d+), max supported IR version: (\d+)",
        "the model's IR version is {0}, this ONNX Runtime reads up to {1}",
        "save it with an older onnx, or set model.ir_version lower",
    ),
    (
        r"Opset (\d+) is under development.*?domain (\S+) is till opset (\d+)",
        "the model uses opset {0} of {1}, this ONNX Runtime knows up to {2}",
        _HINT_OPSET,
    ),
    (
        r"Could not find an implementation for (\S+?)\((\d+)\) node with name '([^']*)'",
        "ONNX Runtime has no kernel for {0} (opset {1}) with these types on this device (node {2})",
        "use another --precision, or replace the operator",
    ),
    (
        r"No Op registered for (\S+) with domain_version of (\d+)",
        "ONNX Runtime does not know the operator {0} at opset {1}",
        _HINT_OPSET,
    ),
    (
        r"(\S+?)(?:\(-?\d+\))? is not a registered function/op",
        "ONNX Runtime does not know the operator {0}",
        "custom operators cannot be run; use --no-run",
    ),
    (
        r"Type Error: (.*)",
        "ONNX Runtime refuses the model's types: {0}",
        "check the model with onnx.checker.check_model, or use another --precision",
    ),
    (
        r"(?:CUDA out of memory|CUDA failure 2|CUBLAS_STATUS_ALLOC_FAILED)",
        "the GPU ran out of memory",
        _HINT_MEMORY,
    ),
    (
        r"Failed to allocate memory for requested buffer of size (\d+)",
        "out of memory: {0} bytes were not to be had",
        _HINT_MEMORY,
    ),
    (r"std::bad_alloc|bad allocation", "out of memory", _HINT_MEMORY),
    (
        r"CUDA failure 35|driver version is insufficient",
        "the NVIDIA driver is too old for this build of ONNX Runtime",
        "update the driver",
    ),
    (
        r"no kernel image is available|CUDA failure 209",
        "this build of ONNX Runtime has no machine code for this GPU",
        "install a release of onnxruntime-gpu that supports the GPU",
    ),
    (
        r"CUDA failure (700|719|999|46|100|214)\b",
        "the GPU was lost or a kernel failed (CUDA error {0})",
        "see the kernel's log (dmesg, Xid lines) and nvidia-smi",
    ),
    (
        r"External data path does not exist|[Ee]xternal initializer.*?(?:not found|exist)"
        r"|filesystem error.*No such file",
        "the model's external weights are not beside it",
        "put the data file into the model's folder",
    ),
    (
        r"(?:Protobuf parsing failed|ModelProto does not have a graph)",
        "the file is no ONNX model, or damaged",
        "write it again",
    ),
    (
        r"External initializer: (\S+) .*out of bounds",
        "the file of the model's external weights is too short (it ends before {0})",
        "write the model again, or copy its data file once more",
    ),
    (
        r"Unexpected input data type\. Actual: \(tensor\((\w+)\)\) , expected: \(tensor\((\w+)\)\)",
        "an input is {0} where the model wants {1}",
        "give the right type with --input NAME=SHAPE:DTYPE",
    ),
    (
        r"Invalid rank for input: (\S+) Got: (\d+) Expected: (\d+)",
        "input {0} has {1} axes where the model wants {2}",
        "give the right shape with --input",
    ),
    (
        r"Load model (\S+) failed\. File doesn't exist",
        "there is no file {0}",
        "check the path",
    ),
    (
        r"Got invalid dimensions for input: (\S+).*?index: (\d+) Got: (\d+) Expected: (\d+)",
        "input {0} has {2} where the model wants {3} (axis {1})",
        "give the right shape with --input",
    ),
    (
        r"Non-zero status code returned while running (\S+) node\. Name:'([^']*)' Status Message: (.*)",
        "{0} (node {1}) failed: {2}",
        "check the inputs with --input; indices and shapes must fit the model",
    ),
)


def explained(error: Exception) -> MeasurementError:
    """ONNX Runtime's exception in plain words; its own message stays readable at the end."""
    if isinstance(error, MeasurementError):
        return error
    text = plain(str(error))
    for pattern, sentence, hint in _EXPLANATIONS:
        found = re.search(pattern, text, re.DOTALL)
        if found:
            said = sentence.format(*(group.strip() for group in found.groups())).replace(" (node )", "")
            return MeasurementError(f"{said} (ONNX Runtime: {_short(text)})", hint=hint)
    return MeasurementError(f"ONNX Runtime could not run the model: {_short(text)}", hint="use --no-run")


# A function as C++ prints it: perhaps a return type, then onnxruntime::Something::name(arguments).
_SIGNATURE = re.compile(
    r"(?:(?<!\S)(?:void\*?|bool|[\w:]+::[\w:<>*&]+)\s+)?"
    r"onnxruntime::[\w:~<>]+\([^()]*\)(?: const)?(?: \[with [^\]]*\])?\s*"
)


def plain(text: str) -> str:
    """ONNX Runtime's message without status prefix, source positions, C++ signatures and colours."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", text.strip())
    text = re.sub(r"^Load model from \S+ (?:failed:)?\s*", "", text)
    text = re.sub(r"(?<!\S)\S+\.(?:cc|h|cu|cpp|hpp):\d+ (?:[\w:]+ )?", "", text)
    text = re.sub(_SIGNATURE, "", text)
    return re.sub(r"\s+", " ", text).strip()


def _short(text: str, limit: int = 400) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
