"""ONNX Runtime's messages in plain words, by the patterns of ``onnxruntime_errors.toml``."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from analyzer.errors import AnalyzerError, MeasurementError, MemoryEndedError, ShapesRefusedError
from analyzer.measurement.cuda_libraries import CUDA_PIP_LINE, driver_hint


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
