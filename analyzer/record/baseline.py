"""The baseline of a model: the figures that later checks compare with, small enough for a repository."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

import msgspec

from analyzer.figures import KnownLatency
from analyzer.quantities import Amount, Count
from analyzer.record.analysis import TOOL, Tool
from analyzer.record.formats import Format, marked_by
from analyzer.text import json_escaped

BASELINE_SCHEMA_VERSION: Final = 1
BASELINE_FORMAT = Format(
    name="baseline",
    extension=".json",
    writer="analyzer.record.baseline:baseline_to_json",
    # In whatever order a formatter of the repository put its keys.
    mark=marked_by(r'\A\{(?=[\s\S]*"compares":)(?=[\s\S]*"onnxruntime":)(?=[\s\S]*"modules":)'),
)


class BaselineModule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A module's operators, or those of one type that are in none.

    ``time_s`` is of the target device's plan; ``on_cpu`` are types that the CUDA session has to run on the CPU.
    """

    module: str
    flops: Count
    bytes: Count
    time_s: Amount
    on_cpu: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The figures that a check compares with.

    ``compares`` says of what: the model, its batch, devices and options. ``latency`` is the target device's.
    ``depth`` is how many names of a module's path are told apart.
    """

    schema_version: Literal[1] = BASELINE_SCHEMA_VERSION
    tool: Tool = TOOL
    onnxruntime: str
    compares: Mapping[str, str]
    latency: KnownLatency
    figures: Mapping[str, Count | Amount]
    depth: Count
    modules: tuple[BaselineModule, ...]

    @property
    def writer(self) -> Mapping[str, str]:
        """The versions by which its figures are what they are."""
        return {"analyze": self.tool.version, "ONNX Runtime": self.onnxruntime}


def baseline_to_json(baseline: Baseline) -> str:
    """Return the baseline as JSON, a line a module, so that a diff of two reads well."""
    head = msgspec.to_builtins(replace(baseline, modules=()), str_keys=True)
    modules = ",\n  ".join(json.dumps(msgspec.to_builtins(one), ensure_ascii=False) for one in baseline.modules)
    before, _, after = json.dumps({**head, "modules": ["@"]}, indent=1, ensure_ascii=False).rpartition('"@"')
    return json_escaped(f"{before}{modules}{after}\n")
