"""ONNX Runtime's messages in plain words.

What CUDA refuses is matched by what ONNX Runtime 1.31 says when its own CUDA provider meets that error; the
numbers are those of CUDA's ``cudaError_t``.
"""

from __future__ import annotations

import re

from analyzer.errors import AnalyzerError, MeasurementError, MemoryEndedError, ShapesRefusedError
from analyzer.measurement.cuda_libraries import CUDA_PIP_LINE, driver_hint

_HINT_MEMORY = "use a smaller --batch, or --no-run for predictions alone"
_HINT_OPSET = "export with a lower --opset, or install a newer onnxruntime"
_DRIVER = "the NVIDIA driver is too old for this build of ONNX Runtime, or does not match the GPU"
_HINT_LOST = "see the kernel's log (dmesg, Xid lines) and nvidia-smi"
_HINT_GRAPH = "the other ways are measured all the same"

# Memory ended; groups of the pattern fill the sentence.
_MEMORY_ENDED: tuple[tuple[str, str], ...] = (
    (
        r"CUDA out of memory|CUDA failure 2:|CUBLAS failure 3:|CU(?:BLAS|DNN)_STATUS_ALLOC_FAILED",
        "the GPU ran out of memory",
    ),
    (
        r"Failed to allocate memory for requested buffer of size (\d+)",
        "out of memory: {0} bytes were not to be had",
    ),
    (
        r"Available memory of (\d+) is smaller than requested bytes of (\d+)",
        "out of memory: {1} bytes were wanted, {0} were left of what ONNX Runtime may take",
    ),
    (r"std::bad_alloc|bad allocation", "out of memory"),
)
# What kernels of ONNX Runtime 1.31 say of operands whose shapes do not fit each other.
_SHAPES = re.compile(
    r"dimension mismatch|must have shape|Attempting to broadcast|could not be broadcast|invalid expand shape"
    r"|Non concat axis dimensions must match|Input channels C is not equal|cannot be reshaped"
    r"|must match X\.shape|Invalid input (?:scale|shape)",
    re.IGNORECASE,
)
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
        r"Failed to construct locale with name:\s*([^:\s]+)",
        "this machine lacks the locale {0}, which StringNormalizer needs",
        "make it: on Debian or Ubuntu `apt install locales && localedef -i en_US -f UTF-8 en_US.UTF-8`, "
        "without root `localedef -i en_US -f UTF-8 DIR/en_US.UTF-8 && export LOCPATH=DIR`; or use --no-run",
    ),
    (
        r"Type Error: (.*)",
        "ONNX Runtime refuses the model's types: {0}",
        "check the model with onnx.checker.check_model, or use another --precision",
    ),
    (
        r"CUDA failure (?:35|803|804):|driver version is insufficient",
        _DRIVER,
        "",  # says which driver is needed, see ``explained``
    ),
    (
        r"CUDA failure 100:|no CUDA-capable device",
        "CUDA finds no GPU",
        "unset CUDA_VISIBLE_DEVICES, give the container the GPU (docker run --gpus all), or use --gpu none",
    ),
    (
        r"Invalid device ID: (-?\d+), must be between 0 \(inclusive\) and (\d+)|CUDA failure 101:",
        "there is no such GPU: CUDA sees fewer than asked for",
        "see nvidia-smi and CUDA_VISIBLE_DEVICES",
    ),
    (
        r"CUDA failure 46:",
        "the GPU is taken: another process has it for itself",
        "see nvidia-smi (compute mode, processes)",
    ),
    (
        r"CUDA failure 802:",
        "CUDA is not ready on this machine: one of the driver's services does not run",
        "GPUs joined by NVSwitch need nvidia-fabricmanager; see nvidia-smi -q",
    ),
    (
        r"no kernel image is available|CUDA failure 209:",
        "this build of ONNX Runtime has no machine code for this GPU",
        "install a release of onnxruntime-gpu that supports the GPU",
    ),
    (
        r"CUDA failure (700|702|714|715|716|717|718|719|999|214|220|710)\b",
        "the GPU was lost or a kernel failed (CUDA error {0})",
        _HINT_LOST,
    ),
    (
        r"cuDNN is unavailable or disabled",
        "cuDNN, which this operator needs on the GPU, is not found",
        CUDA_PIP_LINE,
    ),
    (
        r"Failed to initialize CUDNN Frontend|CUDNN_FE failure|CUDNN failure",
        "cuDNN fails; its version may not be the one that this ONNX Runtime was built for",
        CUDA_PIP_LINE,
    ),
    (
        r"graph capture feature as requested by the user\s+as the model has control flow",
        "a CUDA graph cannot hold If, Loop or Scan",
        _HINT_GRAPH,
    ),
    (
        r"graph capture feature as requested by the user\s+as all (?:the|compute) graph nodes",
        "a CUDA graph cannot hold operators that run on the CPU",
        _HINT_GRAPH,
    ),
    (
        r"CUDA failure 90\d:",
        "an operator does what a CUDA graph cannot record (waits for the GPU, or takes memory)",
        _HINT_GRAPH,
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
        "check the inputs with --input NAME=SHAPE:DTYPE=LOW..HIGH; indices and shapes must fit the model",
    ),
)


def explained(error: Exception) -> AnalyzerError:
    """ONNX Runtime's exception in plain words; its own message stays readable at the end."""
    if isinstance(error, AnalyzerError):
        return error
    # Memory first: a message about it may also hold the words of a failed node.
    text = plain(str(error))
    for pattern, sentence in _MEMORY_ENDED:
        match = re.search(pattern, text)
        if match:
            return MemoryEndedError(_sentence(sentence, match, text), hint=_HINT_MEMORY)
    for pattern, sentence, hint in _EXPLANATIONS:
        match = re.search(pattern, text, re.DOTALL)
        if match:
            hint = driver_hint() if sentence is _DRIVER else hint
            kind = ShapesRefusedError if _SHAPES.search(text) else MeasurementError
            return kind(_sentence(sentence, match, text), hint=hint)
    return MeasurementError(f"ONNX Runtime could not run the model: {_short(text)}", hint="use --no-run")


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
