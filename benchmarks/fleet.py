"""What a fleet of 50 models on 30 GPUs costs beside exporting them; prints a table, asserts nothing.

    python benchmarks/fleet.py [--gpus 30] [--jobs N]

The models are the samples, some of them at other sizes (their constants replaced), and the light topologies
that come with onnx. A bare export is `torch.onnx.export` of a model that is built already, in one process for
all, imports not counted; of an ONNX file it is nothing. Models whose weights no memory holds are built on the
meta device for it. Then `analyze fleet --no-cache` from nothing, the same again, and once more with one model
changed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "samples"
# Sample -> what is replaced in its text, a copy for each.
SIZES: dict[str, tuple[tuple[str, str], ...]] = {
    "bert_base": (
        ("WIDTH, LAYERS, HEADS, HIDDEN = 768, 12, 12, 3072", "WIDTH, LAYERS, HEADS, HIDDEN = 128, 2, 2, 512"),
        ("WIDTH, LAYERS, HEADS, HIDDEN = 768, 12, 12, 3072", "WIDTH, LAYERS, HEADS, HIDDEN = 512, 4, 8, 2048"),
        ("WIDTH, LAYERS, HEADS, HIDDEN = 768, 12, 12, 3072", "WIDTH, LAYERS, HEADS, HIDDEN = 768, 6, 12, 3072"),
        (
            "WIDTH, LAYERS, HEADS, HIDDEN = 768, 12, 12, 3072",
            "WIDTH, LAYERS, HEADS, HIDDEN = 1024, 24, 16, 4096",
        ),
    ),
    "gpt2": (
        ("Size(layers=12, width=768, heads=12)", "Size(layers=6, width=768, heads=12)"),
        ("Size(layers=12, width=768, heads=12)", "Size(layers=24, width=1024, heads=16)"),
        ("TOKENS = 128", "TOKENS = 512"),
    ),
    "vit_b16": (
        ("WIDTH, LAYERS, HEADS, HIDDEN = 768, 12, 12, 3072", "WIDTH, LAYERS, HEADS, HIDDEN = 192, 12, 3, 768"),
        ("WIDTH, LAYERS, HEADS, HIDDEN = 768, 12, 12, 3072", "WIDTH, LAYERS, HEADS, HIDDEN = 384, 12, 6, 1536"),
        ("IMAGE, PATCH = 224, 16", "IMAGE, PATCH = 384, 16"),
    ),
    "lstm": (("hidden: int = 512", "hidden: int = 128"), ("hidden: int = 512", "hidden: int = 1024")),
    "unet": (
        ("WIDTHS = (64, 128, 256, 512, 1024)", "WIDTHS = (32, 64, 128, 256)"),
        ("classes: int = 2", "classes: int = 21"),
    ),
    "recommender": (("100_000, 16, 8", "1_000_000, 32, 8"), ("100_000, 16, 8", "10_000, 8, 4")),
    "mobilenet_v2": (("classes: int = 1000", "classes: int = 10"),),
    "resnet50": (
        ("classes: int = 1000", "classes: int = 10"),
        ("blocks=6", "blocks=23"),
        ("blocks=6", "blocks=2"),
    ),
    "generate": (("WIDTH, LAYERS, HEADS = 384, 6, 6", "WIDTH, LAYERS, HEADS = 768, 12, 12"),),
    "preprocessing": (("resize: int = 256", "resize: int = 512"),),
    "llama_7b": (
        (
            "WIDTH, LAYERS, HEADS, HIDDEN = 4096, 32, 32, 11008",
            "WIDTH, LAYERS, HEADS, HIDDEN = 2048, 16, 16, 5504",
        ),
        ("TOKENS = 2048", "TOKENS = 512"),
    ),
}
BARE = """
import importlib, json, sys, time, warnings
warnings.simplefilter("ignore")
import torch
sys.path.insert(0, sys.argv[1])
seconds = {}
for name in sys.argv[2:]:
    module = importlib.import_module(name)
    large = name.startswith(("llama_7b", "gpt3"))
    with torch.device("meta" if large else "cpu"):
        build = getattr(module, "build_model", None) or getattr(module, "model", None)
        if build is None:  # a function of tensors
            whole = torch.nn.Module()
            whole.forward = getattr(module, name.partition("_")[0])
            build = whole
        model = build.eval() if isinstance(build, torch.nn.Module) else build().eval()
        inputs = module.example_inputs(1)
    start = time.perf_counter()
    torch.onnx.export(model, inputs, dynamo=True, verbose=False, optimize=not large)
    seconds[name] = time.perf_counter() - start
    del model
print("RESULT" + json.dumps(seconds))
"""


def write_models(folder: Path) -> tuple[list[str], list[Path]]:
    """Names of the Python models in this folder, and ONNX files."""
    import onnx

    python = []
    for path in sorted(SAMPLES.glob("*.py")):
        if path.stem == "make_boosted_trees":
            continue
        source = path.read_text(encoding="utf-8")
        (folder / path.name).write_text(source, encoding="utf-8")
        python.append(path.stem)
        for number, (old, new) in enumerate(SIZES.get(path.stem, ()), 1):
            if old not in source:
                raise SystemExit(f"{path} has no {old!r}")
            (folder / f"{path.stem}_{number}.py").write_text(source.replace(old, new), encoding="utf-8")
            python.append(f"{path.stem}_{number}")
    light = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    graphs = [SAMPLES / "boosted_trees.onnx", *sorted(light.glob("*.onnx"))]
    for graph in graphs:
        shutil.copy(graph, folder / graph.name)
    return python, graphs


def fleet(folder: Path, gpus: str, jobs: int | None) -> tuple[float, int, int]:
    """Seconds, models and failures of one run."""
    command = [sys.executable, "-m", "analyzer", "fleet", "zoo", "--gpu", gpus, "--no-cache", "--quiet"]
    command += ["--output", "out", *(["--jobs", str(jobs)] if jobs else [])]
    start = time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    seconds = time.perf_counter() - start
    models = json.loads((folder / "out" / "fleet.json").read_text(encoding="utf-8"))["models"]
    failed = [model["name"] for model in models if model["failure"]]
    if failed:
        print("failed:", *failed)
    return seconds, len(models), len(failed)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpus", type=int, default=30)
    parser.add_argument("--jobs", type=int)
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from analyzer.devices import catalogue

    names = [gpu.slug for gpu in catalogue.gpus() if gpu.link is not None][: arguments.gpus]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "zoo").mkdir()
        python, graphs = write_models(folder / "zoo")
        first = fleet(folder, ",".join(names), arguments.jobs)
        second = fleet(folder, ",".join(names), arguments.jobs)
        changed = folder / "zoo" / "mlp.py"
        changed.write_text(changed.read_text(encoding="utf-8") + "\n# changed\n", encoding="utf-8")
        third = fleet(folder, ",".join(names), arguments.jobs)
        print("fleets:", first, second, third, flush=True)
        answer = subprocess.run(
            [sys.executable, "-c", BARE, str(folder / "zoo"), *python],
            capture_output=True,
            text=True,
            check=False,
        )
        if "RESULT" not in answer.stdout:
            raise SystemExit(answer.stderr[-2000:])
        bare = json.loads(answer.stdout.rpartition("RESULT")[2])
    total = sum(bare.values())
    print(f"{len(python)} Python models and {len(graphs)} ONNX files, {len(names)} GPUs")
    print(f"bare exports, one after the other {total:8.1f} s   (imports not counted)")
    for name, (seconds, models, failed) in (("from nothing", first), ("again", second), ("one changed", third)):
        print(
            f"fleet, {name:<14} {seconds:8.1f} s   {seconds / total:5.2f} x bare, "
            f"{seconds / first[0]:6.1%} of the first; {models} models, {failed} failed"
        )


if __name__ == "__main__":
    main()
