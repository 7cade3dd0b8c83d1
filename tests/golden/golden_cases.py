"""The commands whose results are pinned: every command, and every sample; nothing is measured."""

from __future__ import annotations

from collections.abc import Mapping

# One machine for all, and two cards: what runs the tests decides nothing.
_TARGETS = "--gpu l4,h100 --cpu epyc-9654"
_STATIC = f"--no-run {_TARGETS} --quiet"
# All that a record is rendered to; SARIF and JUnit hold the findings.
_FORMATS = "--format json,html,markdown,text,csv,sarif,junit,github"

# The record, and the text of the terminal.
_SHORT = "--format json,text --output {out}/"

# The batches at which each sample is usually discussed.
_SAMPLES: Mapping[str, str] = {
    "linear.py": "64,512",
    "mlp.py": "64",
    "batch_matmul.py": "256",
    "conv.py": "32,1",
    "attention.py": "32",
    "resnet50.py": "64,1,8",
    "mobilenet_v2.py": "64",
    "vit_b16.py": "16",
    "bert_base.py": "8",
    "gpt2.py": "8",
    "generate.py": "1",
    "lstm.py": "16",
    "recommender.py": "64",
    "preprocessing.py": "32",
    "unet.py": "8",
    "llama_7b.py": "1",
    "gpt3_175b.py": "1",
    "boosted_trees.onnx": "256",
}
# Of the others the record and the terminal's text are pinned: the rest is made of the same record.
_IN_ALL_FORMATS = ("mlp.py", "resnet50.py", "gpt2.py", "preprocessing.py", "boosted_trees.onnx")

# Those that take a second or two.
QUICK = (
    "run-mlp",
    "run-attention",
    "run-preprocessing",
    "run-boosted_trees",
    "run-prices",
    "lists",
    "mistakes",
)

# A case is a few commands, one after the other, in one folder: {out} is that folder, {in} that of the inputs.
CASES: Mapping[str, tuple[str, ...]] = {
    **{
        f"run-{name.partition('.')[0]}": (
            f"samples/{name} --batch {batch} {_STATIC} "
            f"{_FORMATS if name in _IN_ALL_FORMATS else '--format json,text'} --output {{out}}/",
        )
        for name, batch in _SAMPLES.items()
    },
    "run-training": (
        f"samples/mlp.py --training --batch 64,8 --dataset-size 50000 {_STATIC} {_FORMATS} --output {{out}}/",
        f"samples/mobilenet_v2.py --training --batch 8 {_STATIC} {_SHORT}",
    ),
    "run-limits": (
        f"samples/resnet50.py --batch 1,8,64 --slo 9ms --objective cost {_STATIC} {_FORMATS} --output {{out}}/",
        f"samples/mlp.py --batch 64,1 --slo 1us --objective throughput {_STATIC} {_SHORT}",
        f"samples/bert_base.py --batch 8 --objective energy {_STATIC} {_SHORT}",
    ),
    "run-prices": (
        f"samples/conv.py --batch 8 --pricing spot --region europe --utilisation 0.4 {_STATIC} {_FORMATS} "
        "--output {out}/",
        f"samples/mlp.py --batch 64 --prices {{in}}/prices.toml {_STATIC} {_SHORT}",
    ),
    "run-precisions": (
        f"samples/bert_base.py --batch 8 --precision int8 {_STATIC} {_SHORT}",
        f"samples/vit_b16.py --batch 1 --precision fp16 {_STATIC} {_SHORT}",
        f"samples/mlp.py --batch 64 --precision int4 {_STATIC} {_SHORT}",
    ),
    "run-pins": (
        f"samples/preprocessing.py --batch 32 --pin *Resize*=cpu {_STATIC} {_SHORT}",
        "samples/lstm.py --batch 16 --no-run --gpu none --cpu epyc-9654 --quiet --format json,html,text "
        "--output {out}/",
    ),
    "render": (
        f"samples/mobilenet_v2.py --batch 8,64 {_STATIC} --format json --output {{out}}/",
        "render {out}/mobilenet_v2.json --gpu a100,t4 --precision fp16 --slo 20ms --objective cost --quiet "
        f"{_FORMATS} --output {{out}}/again/",
        "render {out}/mobilenet_v2.json --cpu xeon-platinum-8375c --pricing spot --quiet --format json,text "
        "--output {out}/elsewhere/",
    ),
    "check": tuple(
        f"check samples/{name} --quiet {more} --format {form} --output {{out}}/{name}.{ending}"
        for name, more, form, ending in (
            ("attention.py", "--gpu l4", "text", "txt"),
            ("preprocessing.py", "--gpu l4,h100 --fail-on warning", "json", "json"),
            ("lstm.py", "--gpu l4 --max-copies 0 --max-latency 1us", "markdown", "md"),
            ("boosted_trees.onnx", "--gpu l4", "sarif", "sarif"),
            ("recommender.py", "--gpu l4 --max-cpu-operators 0 --slo 1us", "junit", "xml"),
            ("resnet50.py", "--gpu l4 --ignore A2 --warn-on A101", "github", "txt"),
        )
    ),
    "check-baseline": (
        "check samples/mlp.py --batch 64 --gpu l4 --quiet --baseline {out}/base.json --update-baseline "
        "--output {out}/first.txt",
        "check samples/mlp.py --batch 256 --gpu l4 --quiet --baseline {out}/base.json --tolerance 2% "
        "--output {out}/second.txt",
        f"samples/mlp.py --batch 64 {_STATIC} --format json --output {{out}}/record.json",
        "check {out}/record.json --max-latency 1us --quiet --format text,json --output {out}/record/",
    ),
    "compare": (
        f"samples/mobilenet_v2.py --batch 1 {_STATIC} --format json --output {{out}}/one.json",
        f"samples/mobilenet_v2.py --batch 8 --precision fp16 {_STATIC} --format json --output {{out}}/two.json",
        f"samples/conv.py --batch 8 {_STATIC} --format json --output {{out}}/three.json",
        "compare {out}/one.json {out}/two.json --format text --output {out}/two.txt",
        "compare {out}/one.json {out}/two.json --format markdown --output {out}/two.md",
        "compare {out}/one.json {out}/two.json --format html --output {out}/two.html",
        "compare {out}/one.json {out}/two.json {out}/three.json --format text --output {out}/three.txt",
    ),
    "generate": (
        f"generate samples/generate.py --no-run {_TARGETS} --prompt 64 --output-tokens 32 --batch 1,8 --quiet "
        "--format json,html,markdown,text,csv --output {out}/",
        "generate {in}/llama --no-run --gpu h100,l4 --cpu epyc-9654 --gpus 2 --batch 1,16 --ttft 500ms "
        "--tpot 30ms --weights fp8 --kv fp8 --launch graph --quiet --format json,html,text --output {out}/",
        "generate {in}/mixtral --no-run --gpu h200 --cpu epyc-9654 --quiet --format json,text --output {out}/",
    ),
    "capacity": (
        "capacity samples/mlp.py --no-run --rate 20000 --p99 5ms --headroom 20% --spare 1 --quiet "
        "--format json,html,markdown,text,csv --output {out}/",
        "capacity samples/resnet50.py --no-run --gpu l4,t4 --rate 500 --p95 50ms --growth 2 --max-batch 16 "
        "--quiet --format json,text --output {out}/",
        "capacity {out}/mlp-capacity.json --rate 100 --quiet --format text --output {out}/less.txt",
    ),
    "capacity-generate": (
        "capacity {in}/llama --no-run --gpu h100 --rate 3 --ttft 2s --tpot 60ms --prompt 512 "
        "--output-tokens 128 --quiet --format json,html,text --output {out}/",
    ),
    "apply": (
        "apply samples/mlp.py --no-run --gpu l4 --cpu epyc-9654 --batch 64 --quiet --output {out}/mlp",
        "apply samples/preprocessing.py --no-run --gpu l4 --cpu epyc-9654 --plan hybrid --batch 4 --quiet "
        "--output {out}/preprocessing",
        # Of 32 images the numbers of three sets of inputs take 45 s.
        "apply samples/conv.py --batch 2 --no-run --gpu l4 --cpu epyc-9654 --pin *=cpu --precision fp16 "
        "--quiet --output {out}/conv",
    ),
    "fleet": (
        "fleet {in}/fleet.toml --jobs 1 --cpu epyc-9654 --gpu l4,t4 --quiet --output {out}/fleet",
        "fleet samples/mlp.py samples/conv.py --jobs 1 --cpu epyc-9654 --gpu t4 --batch 1,64 --slo 2ms --quiet "
        "--compare {out}/fleet/fleet.json --output {out}/later",
        "check {out}/fleet/fleet.json --quiet --format text --output {out}/check.txt",
    ),
    "lists": (
        "devices",
        "devices l4",
        "ops",
        "ops Conv",
        "rules",
        "rules A101",
        *(
            f"{command} --help".strip()
            for command in ("", "check", "render", "compare", "generate", "capacity")
        ),
        *(f"{command} --help" for command in ("apply", "fleet", "devices", "calibrate")),
    ),
    "mistakes": (
        "samples/mlp.py --gpu l44 --no-run",
        "samples/mlp.py --batch none",
        "samples/mlp.py --slo 20",
        "samples/mlp.py --precision fp12",
        "samples/mlp.py --input x=B,7 --no-run",
        "samples/mlp.py --prices {in}/fleet.toml --no-run",
        "samples/nothing.py",
        "render samples/mlp.py",
        "render {in}/fleet.toml",
        "generate samples/mlp.py --no-run",
        "capacity samples/mlp.py --rate 10",
        "capacity samples/mlp.py --rate 10 --p99 5ms --p50 1ms",
        "apply samples/mlp.py --plan both --output {out}/session",
        "fleet {in}/prices.toml",
        "compare {in}/prices.toml {in}/fleet.toml",
        "check samples/mlp.py --fail-on A9999",
        "check samples/mlp.py --max-latency fast",
    ),
}
