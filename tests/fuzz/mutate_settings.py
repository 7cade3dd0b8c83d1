"""Settings, devices and prices that nobody should write: a seed to the bytes of a TOML file."""

from __future__ import annotations

from collections.abc import Sequence

from mutation import TEXTS, Draw, scrambled, without_lone_bytes

from analyzer.options import in_settings

VICTIM = "../victim.json"
"""A file outside the folder of the settings, which nothing may change."""

PATHS = (
    VICTIM, "../new.json", "../new/", "model.onnx", "pyproject.toml", "out", "out/", "out/a.json", ".", "..",
    "/", "/dev/null",
    "/dev/full", "link/x.json", "away/x.json", "-", "", "a\0b", "x" * 300, "~/x", "record.json", "a\nb.json",
    "/proc/self/x",
    "weights.bin/x", "::error::canary", "\n::error::canary",
)  # fmt: skip
WORDS = (
    "cpu", "gpu", "l4", "a100", "none", "h100,t4", "epyc-9654", "fp32", "int8", "latency", "cost", "energy",
    "20ms", "2%", "1e999",
    "nan", "-1", "error", "A101", "A2", "never", "json", "html,json", "sarif", "github", "*=cpu", "Gemm=gpu",
    "[=cpu", "x=2x8",
    "x=B,8:float32", "x=-1x8", "x=", "=", "device.toml", "prices.toml", "10s", "1e400s", "inf", "٣",
)  # fmt: skip
RAW = (
    "nan", "inf", "-inf", "1e999", "99999999999999999999999", "0x", "[", "{", "[[1]]", "{a=1}", "true",
    "1979-05-27T07:32:00Z",
    "''", '"""\n"""', "[" * 1000 + "]" * 1000, "[" * 20_000, "{a=" * 500, "1_000", "9" * 5000, "0o7", "''' '''",
)  # fmt: skip
# What asks for a measurement or for time without end is no settings' business here: a run takes seconds.
LEFT_OUT = ("run", "runs", "time-budget", "training")

DEVICE = """[example-a1]
name = "Example A1"
vendor = "NVIDIA"
architecture = "Ampere"
compute_capability = "8.6"
units = 20
peak_flops_per_s = { fp32 = 9.1e12, tf32 = 18.2e12, fp16 = 36.4e12, bf16 = 36.4e12, int8 = 72.8e12 }
bandwidth_bytes_per_s = 288e9
memory_bytes = 12000000000
cache_bytes = 3145728
clock_hz = 1.78e9
tdp_w = 130.0
link = "PCIe 4.0 x16"
year = 2021
assumed = ["cache_bytes"]
sources = ["techpowerup"]
"""
PRICES = """[sources]
mine = "a list"

[[instances]]
provider = "Mine"
name = "box"
region = "here"
vcpus = 8
memory_bytes = 34359738368
cpu = "epyc-9654"
gpu = "l4"
gpu_count = 1
usd_per_hour = 0.5
price_date = "2026-01-01"
source = "mine"
"""


def settings_case(seed: int) -> bytes:
    """The bytes of a ``pyproject.toml``."""
    draw = Draw(seed, 3)
    known = [option.name for option in in_settings("tool.analyzer")]
    gate = [option.name for option in in_settings("tool.analyzer.check")]
    lines = ["[tool.analyzer]", *some(known, draw)]
    if draw.chance(0.6):
        lines += ["[tool.analyzer.check]", *some([*gate, *known], draw)]
    if draw.chance(0.1):
        lines.insert(
            draw.below(len(lines) + 1),
            draw.among(("[tool]", "[tool.analyzer]", "[[tool]]", "tool = 1", "[a.b", "=", "\0", "x")),
        )
    return finished("\n".join(lines) + "\n", draw)


def some(keys: Sequence[str], draw: Draw) -> list[str]:
    """A few keys, each with a value that may be one of its own."""
    chosen = {draw.among(keys) for _ in range(draw.few())} - set(LEFT_OUT)
    if draw.chance(0.05):
        chosen.add(f'"{escaped(draw.text())}"')
    return [
        f"{key} = {draw.among(RIGHT.get(key, ('1',))) if draw.chance(0.75) else value(key, draw)}"
        for key in sorted(chosen)
    ]


# What a key takes; hints of others stand in WORDS.
RIGHT = {
    "batch": ("1", "8", "[1, 64]"),
    "input": ('"x=2x8"', '["x=B,8:float32"]'),
    "gpu": ('"l4"', '"none"', '["h100", "t4"]', '"device.toml"'),
    "cpu": ('"epyc-9654"',),
    "precision": ('"fp16"', '"int8"', '"int4"'),
    "opset": ("17", "21"),
    "no-run": ("true",),
    "threads": ("4",),
    "dataset-size": ("0", "1000"),
    "objective": ('"cost"', '"energy"', '"throughput"'),
    "slo": ('"20ms"', "0.02", "1e-9"),
    "pin": ('"*=cpu"', '["Gemm=gpu", "MatMul=cpu"]'),
    "prices": ('"prices.toml"',),
    "utilisation": ("0.5", "1"),
    "plan": ('"cpu"', '"hybrid"'),
    "pricing": ('"spot"',),
    "region": ('"us"', '["europe", "asia"]'),
    "weights": ('"int4"',),
    "kv": ('"fp16"',),
    "launch": ('"graph"',),
    "ttft": ('"500ms"',),
    "tpot": ('"20ms"',),
    **dict.fromkeys(("p50", "p90", "p95", "p99", "mean"), ('"50ms"',)),
    "max-delay": ('"2ms"',),
    "headroom": ("0.2", '"20%"'),
    "fix": ('"fusions"', '"all"'),
    "provider-option": ('"prefer_nhwc"', '["enable_cuda_graph"]'),
    "onnxruntime": ('"1.30"',),
    "growth": ("2", "1.5"),
    "no-state": ("true",),
    "fail-on": ('"note"', '["warning", "A203"]', '"never"'),
    "warn-on": ('["A202"]',),
    "fail-on-uncertain": ("true",),
    "fail-on-better": ("true",),
    "ignore": ('["A103"]', '[{ code = "A2", operator = "*", reason = "x" }]'),
    "max-cpu-operators": ("0",),
    "max-copies": ("0",),
    "max-latency": ('"20ms"', '{ gpu = "1us", cpu = "2s" }'),
    "max-ttft": ('"500ms"', "0.5"),
    "max-tpot": ('"30ms"',),
    "min-tokens-per-s": ("500", "1e-9"),
    "max-usd-per-month": ("2000", "0.5"),
    "min-rate": ("900",),
    "baseline": ('"record.json"',),
    "tolerance": ('"2%"', "0.1"),
    "format": ('"json"', '"html,json"', '"github"', '["text", "csv"]'),
    "chart": ('"roofline"', '["cost", "timeline"]'),
    "output": ('"out/"', '"out"'),
    "open": ("true",),
    "quiet": ("true",),
    "verbose": ("true",),
    "no-cache": ("true",),
}


def value(key: str, draw: Draw) -> str:
    """A value as TOML writes it."""
    way = draw.below(10)
    if key in ("output", "baseline", "prices", "gpu") and way <= 4:
        return f'"{escaped(draw.among(PATHS))}"'
    if way <= 4:
        return f'"{escaped(draw.among(WORDS))}"'
    if way == 5:
        return f'"{escaped(draw.text())}"'
    if way == 6:
        return str(draw.integer())
    if way == 7:
        return "[" + ", ".join(f'"{escaped(draw.among(WORDS))}"' for _ in range(draw.below(4))) + "]"
    if way == 8:
        inside = ", ".join(
            f'{name} = "{escaped(draw.among((*TEXTS, *WORDS)))}"' for name in ("code", "operator", "reason")
        )
        return f"[{{ {inside} }}]"
    return draw.among(RAW)


def escaped(text: str) -> str:
    """Text within quotes of TOML."""
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in quoted)


def devices_case(seed: int) -> bytes:
    """The bytes of a file of a device or of prices, with strange figures."""
    draw = Draw(seed, 4)
    lines = draw.among((DEVICE, PRICES)).splitlines()
    for _ in range(draw.few()):
        at = draw.below(len(lines))
        key, equals, _ = lines[at].partition(" = ")
        way = draw.below(5)
        if way == 0 or not equals:
            del lines[at]
        elif way == 1 and draw.chance(0.2):
            lines.insert(at, lines[at])
        else:
            figures = ("0", "1", "7", "1e-320", "1e20", "1e308")
            lines[at] = f"{key} = {draw.among((value(key, draw), draw.among(RAW), *figures))}"
        if not lines:
            break
    return finished("\n".join(lines) + "\n", draw)


def finished(text: str, draw: Draw) -> bytes:
    """The bytes, sometimes damaged."""
    content = without_lone_bytes(text.encode())
    return scrambled(content, draw) if draw.chance(0.1) else content
