"""Rebuilds the kernel registries that the analyzer carries, from wheels of onnxruntime-gpu.

Run ``python tests/judge/rebuild_registry.py`` for the installed release, or with ``--wheel FOLDER``
(repeatable) for others, each installed with ``pip install --no-deps --target FOLDER onnxruntime-gpu==1.30.0``;
the newest four stay. It needs Linux and gcc, no GPU.

Kernels and schemas come from ONNX Runtime's own listing, the memory that a CUDA kernel wants its arguments in
from graphs in which every argument comes from and goes to a CPU-only operator: no copy means host memory.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import onnx

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))

import court
import standins

from analyzer.ort.kernels import OLDER, listing, releases

READER = Path(__file__).with_name("registry_reader.py")
DATA = Path(__file__).parents[2] / "analyzer" / "ort" / "data"
KNOWN = 4  # releases, the newest
DOMAINS = {"": "ai.onnx"}
OPTION = {"Single": "", "Optional": "?", "Variadic": "*"}
# A case is probed at each: a kernel may stop at an older one; the CPU-only operator takes tensors from 18 on.
PROBE_OPSETS = (23, 21, 18)
ENOUGH_CASES = 5  # of an operator with the same arguments present: the others only differ in values
# Operators whose CUDA kernel no backend case reaches.
EXAMPLES = (
    ("OneHot", "int64[4] int64[1] float[2]", "float"),
    ("MatMulInteger", "int8[4,4] int8[4,4]", "int32"),
    ("SequenceAt", "seq(float[N]) int64", "float"),
    ("SequenceErase", "seq(float[N]) int64", "seq(float[N])"),
    ("SequenceLength", "seq(float[N])", "int64"),
    ("SequenceInsert", "seq(float[N]) float[2] int64", "seq(float[N])"),
    ("SequenceConstruct", "float[2] float[2]", "seq(float[N])"),
    ("ConcatFromSequence <axis=0>", "seq(float[N])", "float"),
    ("RandomNormalLike", "float[2]", "float"),
    ("RandomUniformLike", "float[2]", "float"),
    ("Scan <num_scan_inputs=1, body=b (float[2] i) => (float[2] o) { o = Relu (i) }>", "float[4,2]", "float"),
)
OPEN_END = 2147483647


def read(folder: Path, wheel: Path | None = None) -> dict[str, Any]:
    """ONNX Runtime's own listing of kernels and schemas."""
    standins.build(folder, providers=("cuda", "tensorrt"), wheel=wheel)
    environment = standins.environment(folder, wheel)
    answer = subprocess.run(
        [sys.executable, READER], env=environment, check=True, capture_output=True, text=True
    )
    listed: dict[str, Any] = json.loads(answer.stdout)
    return listed


def compact(listed: dict[str, Any], host: dict[str, Any], newest_opset: int) -> dict[str, Any]:
    """The registry as the analyzer reads it: every list of types once, every schema once."""
    types: dict[str, int] = {}
    kernels: dict[str, Any] = {}
    for provider, domain, name, (start, end), constraints in listed["kernels"]:
        provider = provider.removesuffix("ExecutionProvider").lower()
        if provider not in ("cpu", "cuda"):
            continue
        refs = {
            key: types.setdefault(" ".join(sorted(map(_stripped, allowed))), len(types))
            for key, allowed in sorted(constraints.items())
        }
        entries = (
            kernels.setdefault(provider, {}).setdefault(DOMAINS.get(domain, domain), {}).setdefault(name, [])
        )
        entry = [start, None if end == OPEN_END else end, refs]
        if entry not in entries:
            entries.append(entry)
    schemas: dict[str, Any] = {}
    for domain, name, since, *parameters in sorted(listed["schemas"], key=lambda row: row[:3]):
        versions = schemas.setdefault(DOMAINS.get(domain, domain), {}).setdefault(name, [])
        signature = [[f"{p}:{_stripped(t)}{OPTION[o]}" for p, t, o in side] for side in parameters]
        known = next((row[1:] for row in reversed(versions) if len(row) > 1), None)
        versions.append([since] if signature == known else [since, *signature])
    return {
        "version": listed["version"],
        "source": f"onnxruntime-gpu {listed['version']}: its own listing of kernels and schemas",
        "newest_opset": newest_opset,
        "types": list(types),
        "kernels": {provider: _sorted(domains) for provider, domains in kernels.items()},
        "schemas": schemas,
        "host_memory": host,
        "functions": functions(),
    }


def _stripped(type_string: str) -> str:
    inner = type_string.removeprefix("tensor(")
    return inner.removesuffix(")") if inner != type_string else type_string


def _sorted(domains: dict[str, Any]) -> dict[str, Any]:
    return {
        domain: {name: sorted(entries, key=lambda e: (e[0], str(e))) for name, entries in sorted(names.items())}
        for domain, names in domains.items()
    }


def functions() -> dict[str, Any]:
    """Versions of each default operator that ONNX defines by others.

    A definition that is written down stands with its own opset and the operators in it; one that depends on
    the node has only its version.
    """
    found: dict[str, list[Any]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain:
            continue
        rows = found.setdefault(schema.name, [])
        if schema.context_dependent_function_opset_versions:  # type: ignore[attr-defined]  # not in its stubs
            rows.append([schema.since_version])
        for opset in schema.function_opset_versions:  # type: ignore[attr-defined]  # not in its stubs
            body = onnx.FunctionProto()
            written = schema.get_function_with_opset_version(opset)  # type: ignore[attr-defined]  # not in its stubs
            body.ParseFromString(written)
            used = sorted({node.op_type for node in body.node} - {"Constant"})
            rows.append([schema.since_version, opset, " ".join(used)])
    return {name: sorted(rows) for name, rows in sorted(found.items()) if rows}


def host_memory(folder: Path, wheel: Path | None = None) -> dict[str, Any]:
    """Which arguments each CUDA kernel of the default domain wants in host memory, by operator."""
    found: dict[str, dict[str, dict[int, bool]]] = {}
    standins.build(folder, wheel=wheel)
    with court.Judge(folder, wheel=wheel) as judge:
        reached: Counter[object] = Counter()
        for node, model in probes():
            arguments = (node.op_type, tuple(map(bool, node.input)), tuple(map(bool, node.output)))
            if reached[arguments] >= ENOUGH_CASES:
                continue
            ruling = judge.rule(model, level=0)
            if ruling.error or ruling.assigned.get("probed") != "cuda":
                continue
            reached[arguments] += 1
            moved = {tensor for pair in ruling.copies for tensor in pair[1:]}
            sides = found.setdefault(node.op_type, {"in": {}, "out": {}})
            for side, names, prefix in (("in", node.input, "from_cpu_"), ("out", node.output, "")):
                for index, name in enumerate(names):
                    if name and (
                        side == "out" or prefix + name in {o for n in model.graph.node for o in n.output}
                    ):
                        sides[side][index] = sides[side].get(index, True) and prefix + name not in moved
    rows = {
        name: {side: sorted(i for i, host in of.items() if host) for side, of in sides.items()}
        for name, sides in sorted(found.items())
    }
    return {name: row for name, row in rows.items() if row["in"] or row["out"]}


def newest_opset(folder: Path, wheel: Path | None = None) -> int:
    """Newest opset of the default domain that ONNX Runtime reads, found by trying."""
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    other = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "probe", [value], [other])
    with court.Judge(folder, wheel=wheel) as judge:
        for opset in range(onnx.defs.onnx_opset_version(), 7, -1):
            imports = [onnx.helper.make_opsetid("", opset)]
            if not judge.rule(onnx.helper.make_model(graph, opset_imports=imports, ir_version=10)).error:
                return opset
    raise RuntimeError("ONNX Runtime reads no opset at all")


def probes() -> Iterator[tuple[onnx.NodeProto, onnx.ModelProto]]:
    """One model per single-node case and opset: every argument passes a CPU-only operator."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import onnx.backend.test.loader as loader

        cases = loader.load_model_tests(kind="node")
    models = [case.model for case in cases if case.model and len(case.model.graph.node) == 1]
    for model in (*models, *map(_example, EXAMPLES)):
        yield from (_probe(model, opset) for opset in PROBE_OPSETS)


def _example(row: tuple[str, str, str]) -> onnx.ModelProto:
    """A one-node model from ``(operator, types of its inputs, type of its output)``."""
    op_type, inputs, output = row
    declared = " , ".join(f"{kind} x{i}" for i, kind in enumerate(inputs.split()))
    names = ", ".join(f"x{i}" for i in range(len(inputs.split())))
    graph = f"g ({declared}) => ({output} y) {{ y = {op_type} ({names}) }}"
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {graph}')


def _probe(original: onnx.ModelProto, opset: int) -> tuple[onnx.NodeProto, onnx.ModelProto]:
    model = onnx.ModelProto()
    model.CopyFrom(original)
    model.ir_version = 10
    for entry in model.opset_import:
        entry.version = entry.version if entry.domain else opset
    node = model.graph.node[0]
    node.name = "probed"
    seen = dict.fromkeys(name for name in node.input if name)
    before = [onnx.helper.make_node("OptionalGetElement", [name], [f"from_cpu_{name}"]) for name in seen]
    after = [
        onnx.helper.make_node("OptionalGetElement", [name], [f"to_cpu_{name}"]) for name in node.output if name
    ]
    names = list(node.input)
    node.ClearField("input")
    node.input.extend(f"from_cpu_{name}" if name else "" for name in names)
    nodes = [*before, node, *after]
    outputs = [onnx.helper.make_empty_tensor_value_info(o.output[0]) for o in after]
    for value, output in zip(model.graph.output, outputs, strict=False):
        output.type.CopyFrom(value.type)
    made = onnx.helper.make_graph(
        nodes, "probe", list(model.graph.input), outputs, list(model.graph.initializer)
    )
    model.graph.CopyFrom(made)
    plain = onnx.NodeProto()
    plain.CopyFrom(node)
    plain.ClearField("input")
    plain.input.extend(names)
    return plain, model


def whole(wheel: Path | None = None) -> dict[str, Any]:
    """The registry of the installed release, or of the one in a folder, with the digest of its listing."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        judged, listed = Path(one), Path(two)
        host = host_memory(judged, wheel)
        made = compact(read(listed, wheel), host, newest_opset(judged, wheel))
    return {**made, "digest": digest(made)}


def digest(data: Mapping[str, Any]) -> str:
    """SHA-256 of what a release lists, however the file that holds it is laid out."""
    listed = {name: data[name] for name in ("version", "newest_opset", "host_memory")}
    rows = {**listed, "schemas": data["schemas"], "kernels": _spelled_out(data)}
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()


def _spelled_out(data: Mapping[str, Any]) -> dict[str, Any]:
    """Every kernel with its types in words, the kernels of an operator in one order."""
    types = data["types"]
    return {
        provider: {
            domain: {
                name: sorted(
                    ([start, end, {key: types[ref] for key, ref in refs.items()}] for start, end, refs in rows),
                    key=json.dumps,
                )
                for name, rows in operators.items()
            }
            for domain, operators in domains.items()
        }
        for provider, domains in data["kernels"].items()
    }


def differences(newest_first: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What is another in each release than in the one after it; types are numbered behind the newest's."""
    newest = newest_first[0]
    numbers = {text: number for number, text in enumerate(newest["types"])}
    rows = []
    for newer, older in pairwise(newest_first):
        kernels: dict[str, Any] = {}
        after, before = _spelled_out(newer), _spelled_out(older)
        for provider in before:
            changes = _domain_changes(after[provider], before[provider])
            for operators in changes.values():
                for entries in filter(None, operators.values()):
                    for entry in entries:
                        entry[2] = {
                            key: numbers.setdefault(text, len(numbers)) for key, text in entry[2].items()
                        }
                    entries.sort(key=lambda entry: (entry[0], str(entry)))
            kernels[provider] = changes
        rows.append(
            {
                **{name: older[name] for name in ("version", "source", "newest_opset")},
                "kernels": kernels,
                "schemas": _domain_changes(newer["schemas"], older["schemas"]),
                "host_memory": _changes(newer["host_memory"], older["host_memory"]),
                "digest": older["digest"],
            }
        )
    return {"types": list(numbers)[len(newest["types"]) :], "releases": rows}


def _domain_changes(after: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    every = {
        domain: _changes(after.get(domain, {}), before.get(domain, {})) for domain in sorted({*after, *before})
    }
    return {domain: changes for domain, changes in every.items() if changes}


def _changes(after: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Rows of the operators that differ; None for one that was not there before."""
    names = sorted({*after, *before})
    return {name: before.get(name) for name in names if after.get(name) != before.get(name)}


def write(registries: Iterable[Mapping[str, Any]], folder: Path) -> None:
    """Write the newest release whole, and the three before it by their differences."""
    newest_first = sorted(registries, key=lambda data: _order(data["version"]), reverse=True)[:KNOWN]
    for old in folder.glob("ort_kernels_*.json"):
        old.unlink()
    names = {
        f"ort_kernels_{newest_first[0]['version']}.json": newest_first[0],
        OLDER: differences(newest_first),
    }
    for name, data in names.items():
        (folder / name).write_text(json.dumps(data, separators=(",", ":")) + "\n")
        print(f"{folder / name}: {(folder / name).stat().st_size} bytes", file=sys.stderr)


def _order(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def main() -> None:
    """Adds releases to those that are known, or reads them anew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", type=Path, action="append", metavar="FOLDER", help="of pip install --target")
    parser.add_argument("--output", type=Path, default=DATA, metavar="FOLDER", help="where the files go")
    given = parser.parse_args()
    known = {version: listing(version) for version in releases()}
    for wheel in given.wheel or (None,):
        data = whole(wheel)
        known[data["version"]] = data
    write(known.values(), given.output)


if __name__ == "__main__":
    main()
