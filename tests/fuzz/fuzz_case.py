"""A case: the files that a stranger gives, and the commands that read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import seed_models
from mutate_cache import MODULE, cache_case
from mutate_graphs import decoder_case, graph_case
from mutate_records import base_records, record_case
from mutate_settings import VICTIM, devices_case, settings_case
from mutation import Draw

MODEL = "model.onnx"

Step = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One case.

    Attributes:
        kind, seed: What makes it again.
        files: Content by name; folders are made. None of them may be changed by a command.
        links: Symbolic links: what they point at by their names.
        steps: The arguments of each command, in turn; after a status other than 0 or 1 the rest is left out.
        prepare: Makes what depends on where the case lies; called in its folder.
        environment: Variables of the commands.
        encoding: Of standard output.
    """

    kind: str
    seed: int
    files: Mapping[str, bytes]
    steps: Sequence[Step]
    links: Mapping[str, str] = field(default_factory=dict)
    prepare: Callable[[Path], None] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    encoding: str = "utf-8"


CHECK_FORMATS = ("text", "github", "sarif", "junit", "markdown", "csv", "html")

# What follows the model; each is as likely as the others.
COMMANDS: tuple[Callable[[Draw], list[Step]], ...] = (
    lambda draw: [("check", MODEL, "--format", "json")],
    lambda draw: [("check", MODEL, "--format", "json", "--fail-on", draw.among(("note", "warning", "A2",
    "never")))],
    lambda draw: [("check", MODEL)],
    lambda draw: [("check", MODEL, "--format", draw.among(CHECK_FORMATS))],
    lambda draw: [("check", MODEL, "--format", "github")],
    lambda draw: [("run", MODEL, "--no-run", "--format", "json,html,text,markdown,csv", "--output", "out")],
    lambda draw: [("run", MODEL, "--no-run", "--verbose", "--format", "json", "--output", "out.json")],
    lambda draw: [("check", MODEL, "--gpu", draw.among(("a100", "h100,t4", "none")), "--format", "json")],
    lambda draw: [("check", MODEL, "--batch", draw.among(("1", "8", "1,64", "4096", "1000000000")), "--format",
    "json")],
    lambda draw: [("check", MODEL, "--opset", draw.among(("7", "13", "17", "21", "23")), "--format", "json")],
    lambda draw: [("run", MODEL, "--no-run", "--precision", draw.among(("bf16", "int8", "int4")), "--quiet",
    "--format", "json,html", "--output", "out")],
    lambda draw: [("check", MODEL, "--precision", draw.among(("fp16", "bf16", "int8", "int4")), "--input",
    f"x={draw.integer()}x4")],
    lambda draw: [
        ("run", MODEL, "--no-run", "--quiet", "--format", "json", "--output", "a.json"),
        ("render", "a.json", "--format", draw.among(("html", "text", "csv", "json,markdown,sarif")), "--output",
        "r"),
        ("render", "a.json", "--gpu", "a100", "--format", "json", "--output", "b.json"),
        ("compare", "a.json", "b.json", "--format", draw.among(("text", "markdown", "json"))),
    ],
)  # fmt: skip


# Of standard output; a terminal that knows no Unicode is rare.
ENCODINGS = ("utf-8",) * 18 + ("latin-1", "ascii")


def graph(seed: int) -> Case:
    """A mutated model and a command about it."""
    draw = Draw(seed, 1)
    steps = draw.among(COMMANDS)(draw)
    return Case(
        kind="graphs",
        seed=seed,
        files={MODEL: graph_case(seed), seed_models.WEIGHTS_FILE: bytes(4096), "folder/weights.bin": bytes(64)},
        links={"link": "/etc", "link.bin": "/etc/passwd"},
        steps=steps,
        encoding=draw.among(ENCODINGS),
    )


def decoder(seed: int) -> Case:
    """A mutated model that generates, or should, and a request to it."""
    draw = Draw(seed, 11)
    asked = draw.among(
        (
            (),
            ("--batch", draw.among(("1,64", "65536"))),
            ("--prompt", draw.among(("1", "100000"))),
            ("--output-tokens", draw.among(("1", "1000000"))),
            ("--ttft", "1ms", "--tpot", "1us"),
            ("--launch", "graph"),
        )
    )
    gpu = draw.among(("a100", "none", "h100,l4"))
    formats = draw.among(("json", "json", "json,html,text,markdown,csv"))
    asked = ("--gpu", gpu, "--cpu", "epyc-9654", *asked, "--quiet", "--format", formats, "--output", "out/")
    return Case(
        kind="decoders",
        seed=seed,
        files={MODEL: decoder_case(seed), seed_models.WEIGHTS_FILE: bytes(4096)},
        links={"link": "/etc", "link.bin": "/etc/passwd"},
        steps=[("generate", MODEL, "--no-run", *asked)],
        encoding=draw.among(ENCODINGS),
    )


RENDERED = (
    "html",
    "text",
    "markdown",
    "csv",
    "json",
    "sarif",
    "junit",
    "github",
    "html,json,text,markdown,csv",
)


def record(seed: int) -> Case:
    """A mutated record and a command about it."""
    draw = Draw(seed, 7)
    name = "record.json"
    steps: Step = draw.among(
        (
            ("render", name, "--format", draw.among(RENDERED), "--output", "out/"),
            ("render", name, "--format", draw.among(RENDERED[:-1]), "--output", "-"),
            (
                "render",
                name,
                "--gpu",
                draw.among(("a100", "l4", "none")),
                "--format",
                "json",
                "--output",
                "new.json",
            ),
            (
                "render",
                name,
                "--precision",
                draw.among(("fp16", "bf16", "int8", "int4")),
                "--format",
                "text",
                "--output",
                "-",
            ),
            ("render", name, "--objective", "cost", "--slo", "5ms", "--format", "json", "--output", "new.json"),
            ("check", name, "--format", draw.among((*CHECK_FORMATS, "json"))),
            ("check", name, "--max-copies", "0", "--max-latency", "1us", "--tolerance", "2%"),
            (
                "compare",
                "good.json",
                name,
                "--format",
                draw.among(("text", "markdown", "json", "html")),
                "--output",
                "c",
            ),
            ("compare", name, "good.json", name, "--fail-on", "any"),
            ("check", name, "--baseline", "base.json", "--update-baseline"),
            ("check", name, "--max-usd-per-month", "500", "--min-rate", "30000"),
            ("capacity", name, "--rate", "900", "--format", "json,text", "--output", "out/"),
            (
                "capacity",
                name,
                "--rate",
                "900",
                "--p95",
                "20ms",
                "--gpu",
                "none",
                "--cpu",
                "epyc-9654",
                "--format",
                "json",
                "--output",
                "out.json",
            ),
        )
    )
    files = {name: record_case(seed), "good.json": draw.among(base_records()).encode()}
    return Case(kind="records", seed=seed, files=files, steps=[steps], encoding=draw.among(ENCODINGS))


@cache
def small_model() -> bytes:
    """A model with nothing wrong."""
    return seed_models.perceptron().SerializeToString(deterministic=True)


def settings(seed: int) -> Case:
    """Mutated settings beside a model, or a mutated file of devices or prices."""
    draw = Draw(seed, 8)
    victim = b'{"kept": true}'
    files = {
        MODEL: small_model(),
        VICTIM: victim,
        "record.json": base_records()[0].encode(),
        "weights.bin": bytes(8),
    }
    steps: Step
    if draw.chance(0.3):
        files["given.toml"] = devices_case(seed)
        option = draw.among(("--gpu", "--prices"))
        steps = ("check", MODEL, option, "given.toml", "--format", "json")
    else:
        files["pyproject.toml"] = settings_case(seed)
        files["device.toml"], files["prices.toml"] = devices_case(seed), devices_case(seed + 1)
        steps = draw.among(
            (
                ("check", MODEL),
                ("run", MODEL, "--no-run"),
                ("check", "record.json"),
                ("check", MODEL, "--quiet"),
            )
        )
    return Case(
        kind="settings",
        seed=seed,
        files=files,
        links={"link": "/etc", "away": ".."},
        steps=[steps],
        encoding=draw.among(ENCODINGS),
    )


def forged_cache(seed: int) -> Case:
    """A module whose cached export somebody else has written."""
    draw = Draw(seed, 9)
    step: Step = draw.among(
        (
            ("check", "model.py", "--format", "json"),
            ("check", "model.py"),
            ("run", "model.py", "--no-run", "--format", "json,html", "--output", "out/"),
            ("check", "model.py", "--batch", "4", "--format", "json"),
        )
    )
    return Case(kind="cache", seed=seed, files={"model.py": MODULE}, prepare=cache_case(seed), steps=[step])


KINDS: dict[str, Callable[[int], Case]] = {
    "graphs": graph, "decoders": decoder, "records": record, "settings": settings, "cache": forged_cache,
}  # fmt: skip
