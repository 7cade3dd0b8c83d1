"""The errors a user can meet, by what the user must do about them (leaf: imports nothing of ours)."""

from __future__ import annotations

import re

# What libraries write around words of their own errors for a terminal, to whatever the message goes
# (torch/onnx/_internal/exporter/_constants.py).
_COLOUR = re.compile(r"\x1b\[[\d;]*m")


class AnalyzerError(Exception):
    """Something the user can mend: one message, one hint, exit status 2.

    Args:
        message: What is wrong, in one sentence, naming the thing that is wrong.
        hint: What to try next, or None where there is nothing better to say.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        message = _COLOUR.sub("", message)
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(AnalyzerError):
    """An option or a setting that cannot be right: change the command line or pyproject.toml."""


class ModelError(AnalyzerError):
    """The model cannot be found, chosen, built or read: change the file or name the model."""


class InputError(AnalyzerError):
    """The example inputs are missing or do not fit: give ``--input`` or ``example_inputs(batch)``."""


class ExportError(AnalyzerError):
    """PyTorch cannot turn the model into a graph: change the model's code."""


class LibraryError(AnalyzerError):
    """An installed library lacks what the analysis needs: install a version that was tested."""


class GraphError(AnalyzerError):
    """The graph is not a valid one: cyclic, dangling, or with impossible shapes.

    ``node`` is the index of the operator where that shows, -1 where it is none's; ``wanted`` are sizes of what
    it reads.
    """

    node: int = -1
    wanted: tuple[int, ...] = ()


class DeviceError(AnalyzerError):
    """A device that nobody knows, or one without the figure that is needed."""


class MemoryForeseenError(AnalyzerError):
    """The run would not fit into memory: use ``--no-run`` or a smaller batch."""


class RecordError(AnalyzerError):
    """A saved record that cannot be read: damaged, foreign or of a newer schema."""


class OutputError(AnalyzerError):
    """A report that cannot be written where it was asked for."""


class MeasurementError(AnalyzerError):
    """A run that failed; the analysis goes on with predictions and reports this message."""


class ShapesRefusedError(MeasurementError):
    """A run that failed because the shapes in it do not fit each other: nothing is known of such inputs."""


class DisagreementError(AnalyzerError):
    """A rewritten model gives other numbers than the one it was made of: it is not written; exit status 1."""


class MemoryEndedError(MeasurementError):
    """A run that failed because memory ended: use a smaller batch."""
