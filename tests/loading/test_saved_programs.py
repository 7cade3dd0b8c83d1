"""Saved programs (.pt2) of strangers: what they hold is read, nothing of it is executed."""

import copy
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analyzer.cli import run_command_line
from analyzer.errors import ModelError
from analyzer.loading.from_saved_program import read_program
from analyzer.loading.load import load
from analyzer.loading.loaded import Loaded
from analyzer.loading.model_reference import parse_reference

Entries = dict[str, bytes]
Edit = Callable[[Entries, Path], None]
SAMPLES = "data/sample_inputs/model.pt"
GRAPH = "models/model.json"


def analysed(path: Path) -> Loaded:
    return load(parse_reference(str(path)), use_cache=False)


def read(path: Path) -> Any:
    return read_program(parse_reference(str(path)))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program for batches from 4 to 64, exported with 5, with weights and a constant."""
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, x: Any, d: Any) -> Any:
            return self.layer(x) + d["k"] + torch.tensor([1.0, 2.0, 3.0, 4.0])

    path = tmp_path_factory.mktemp("saved") / "net.pt2"
    rows = torch.export.Dim("rows", min=4, max=64)
    program = torch.export.export(
        Net(),
        (torch.ones(5, 4), {"k": torch.ones(5, 4)}),
        dynamic_shapes=({0: rows}, {"k": {0: rows}}),
    )
    torch.export.save(program, path)
    return path


@pytest.fixture
def rewritten(saved: Path, tmp_path: Path) -> Callable[..., Path]:
    """The saved program with other entries; an edit gets them by name, and the file that must not appear."""

    def write(edit: Edit, compression: int = zipfile.ZIP_STORED) -> Path:
        with zipfile.ZipFile(saved) as archive:
            entries = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
        edit(entries, tmp_path / "ran")
        path = tmp_path / "stranger.pt2"
        with zipfile.ZipFile(path, "w", compression) as archive:
            for name, content in entries.items():
                archive.writestr(f"net/{name}", content)
        return path

    return write


def pickled(marker: Path) -> bytes:
    """What torch.save writes of an object that creates a file when it is unpickled."""
    import torch

    class Creates:
        def __reduce__(self) -> tuple[Any, ...]:
            return open, (str(marker), "w")

    buffer = io.BytesIO()
    torch.save(((Creates(),), {}), buffer)
    return buffer.getvalue()


def creating(marker: Path) -> str:
    return f"__import__('builtins').open({str(marker)!r}, 'w')"


def in_json(entry: str, change: Callable[[Any, Path], None]) -> Edit:
    def edit(entries: Entries, marker: Path) -> None:
        content = json.loads(entries[entry])
        change(content, marker)
        entries[entry] = json.dumps(content).encode()

    return edit


def in_graph(change: Callable[[Any, Any, Path], None]) -> Edit:
    return in_json(GRAPH, lambda program, marker: change(program, program["graph_module"]["graph"], marker))


def renamed(old: str, new: Callable[[Path], str]) -> Edit:
    def edit(entries: Entries, marker: Path) -> None:
        text = entries[GRAPH].decode()
        assert old in text
        entries[GRAPH] = text.replace(old, new(marker)).encode()

    return edit


# Example inputs, guards: not read at all.


def with_evil_samples(entries: Entries, marker: Path) -> None:
    entries[SAMPLES] = pickled(marker)


def with_evil_guards(program: Any, _: Any, marker: Path) -> None:
    program["guards_code"] = [creating(marker)]


def with_a_library(entries: Entries, _: Path) -> None:
    entries["data/aotinductor/model/model.wrapper.so"] = b"\x7fELF"
    entries["data/extra/notes.txt"] = b"\xff"


def with_a_looked_up_name(_: Any, graph: Any, __: Path) -> None:
    graph["nodes"][0]["metadata"]["source_fn_stack"] = "a,torch.os.system"
    graph["nodes"][0]["metadata"]["custom"] = "not JSON"


@pytest.mark.parametrize(
    "edit",
    [with_evil_samples, in_graph(with_evil_guards), with_a_library, in_graph(with_a_looked_up_name)],
    ids=["samples", "guards", "library", "metadata"],
)
def test_what_is_not_needed_is_not_read(edit: Edit, rewritten: Callable[..., Path], tmp_path: Path) -> None:
    found = analysed(rewritten(edit))
    assert not (tmp_path / "ran").exists()
    assert (found.batch, found.batch_range, found.parameters) == (5, (4, 64), 20)
    assert found.graph(9).outputs[0].shape == (9, 4)


@pytest.mark.parametrize(
    "command",
    [["check", "--fail-on", "never"], ["run", "--no-run", "--format", "json", "--output", "-"]],
    ids=["check", "no-run"],
)
def test_no_command_unpickles_example_inputs(
    command: list[str], rewritten: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = rewritten(with_evil_samples)
    monkeypatch.chdir(tmp_path)
    assert run_command_line([command[0], str(path), *command[1:]]) == 0
    assert not (tmp_path / "ran").exists()


def test_a_refused_program_is_one_error_and_status_2(
    rewritten: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = rewritten(with_operator("torch.hub.load"))
    assert run_command_line(["check", str(path)]) == 2
    error = capsys.readouterr().err
    assert "the operator 'torch.hub.load' is not among those that can be read" in error
    assert "Traceback" not in error


# ValuedWeights and constants that are pickles.


def with_pickled(kind: str, entry: str) -> Edit:
    def edit(entries: Entries, marker: Path) -> None:
        name = f"data/{kind}/model_{kind}_config.json"
        config = json.loads(entries[name])
        item = next(iter(config["config"].values()))
        item |= {"path_name": entry, "use_pickle": True}
        entries[name] = json.dumps(config).encode()
        entries[f"data/{kind}/{entry}"] = pickled(marker)

    return edit


def with_a_pickle_for_all(kind: str) -> Edit:
    def edit(entries: Entries, marker: Path) -> None:
        entries[f"data/{kind}/model.pt"] = pickled(marker)

    return edit


@pytest.mark.parametrize(
    "edit",
    [
        with_pickled("weights", "weight_0"),
        with_pickled("constants", "tensor_0"),
        with_pickled("constants", "custom_obj_0"),
        with_pickled("constants", "opaque_obj_0"),
        with_a_pickle_for_all("weights"),
        with_a_pickle_for_all("constants"),
    ],
    ids=["weight", "constant", "custom", "opaque", "weights", "constants"],
)
def test_a_pickled_object_is_refused(edit: Edit, rewritten: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is a pickle, not plain data"):
        read(rewritten(edit))
    assert not (tmp_path / "ran").exists()


# Texts of the graph that PyTorch would evaluate, import or compile.


def with_size(text: Callable[[Path], str]) -> Edit:
    def change(_: Any, graph: Any, marker: Path) -> None:
        graph["tensor_values"]["x"]["sizes"][0] = {"as_expr": {"expr_str": text(marker), "hint": {"as_int": 5}}}

    return in_graph(change)


def with_form(old: str, new: Callable[[Path], str]) -> Edit:
    def change(program: Any, _: Any, marker: Path) -> None:
        signature = program["graph_module"]["module_call_graph"][0]["signature"]
        signature["forward_arg_names"] = None
        form = json.loads(signature["in_spec"])
        assert old in json.dumps(form)
        signature["in_spec"] = json.dumps(form).replace(old, new(marker))

    return in_graph(change)


def with_operator(target: str) -> Edit:
    def change(_: Any, graph: Any, marker: Path) -> None:
        node = copy.deepcopy(graph["nodes"][0])
        argument = {"name": "", "kind": 1, "arg": {"as_string": str(marker)}}
        graph["nodes"].append(node | {"target": target, "name": "more", "inputs": [argument], "outputs": []})

    return in_graph(change)


SIZES = [
    creating,
    lambda marker: f"Max(({json.dumps(creating(marker))},), 1)",
    lambda marker: f"Symbol({json.dumps(creating(marker))})",
    lambda marker: f"Add(1, {json.dumps(creating(marker))})",
    lambda _: "Symbol('s1').__class__",
    lambda _: "Symbol(*[1])",
    lambda _: "(lambda: 1)()",
    lambda _: "[1 for _ in (1,)]",
    lambda _: "Integer(9)**Integer(9)**Integer(9)**Integer(9)",
    lambda _: "Pow(Pow(Pow(Integer(9), Integer(9)), Integer(9)), Integer(9))",
    lambda _: "LShift(Integer(1), Integer(99999999999))",
    lambda _: "Mul('a', 18446744073709551616)",
    lambda _: "Symbol('u99999999999')",
    lambda _: "(" * 5000 + "1" + ")" * 5000,
]
FORMS = [
    # As torch writes an enumeration among the keys of a dict, with the module to import.
    with_form('\\"k\\"', lambda _: json.dumps('{"__enum__": true, "fqn": "antigravity:x", "name": "a"}')[1:-1]),
    with_form('"builtins.dict", "context": "[]", "children_spec": []',
              lambda marker: '"builtins.dict", "context": ' + json.dumps(json.dumps([f"a={creating(marker)}"]))
              + ', "children_spec": [{"type": null, "context": null, "children_spec": []}]'),
]  # fmt: skip
OPERATORS = [
    "os.system", "torch.hub.load", "torch.os.system", "torch.load", "torch.ops.load_library",
    "torch.ops.aten.save.default", "torch.ops.aten.from_file.default", "torch.ops.aten._print.default",
    "torch.ops.aten.relu.default.__call__", "torch.ops.higher_order.print", "_operator.methodcaller",
    "torch.ops.higher_order.call_torchbind", "_operator.call", "math.inf.hex", "#triton:kernel",
    "torch.ops.image.write_file.default", "torch.ops.c10d.send.default", "torch.nn.functional.relu",
]  # fmt: skip


def evil_argument_name(program: Any, _: Any, marker: Path) -> None:
    signature = program["graph_module"]["module_call_graph"][0]["signature"]
    signature["forward_arg_names"] = ["x", f"d={creating(marker)}"]


def evil_module_names(program: Any, _: Any, __: Path) -> None:
    program["graph_module"]["signature"]["input_specs"].append(
        {"custom_obj": {"arg": {"name": "o", "class_fqn": "__torch__.Evil"}, "custom_obj_name": "o"}}
    )


@pytest.mark.parametrize(
    "edit",
    [
        *map(with_size, SIZES),
        *FORMS,
        *map(with_operator, OPERATORS),
        renamed('"d_k"', lambda marker: json.dumps(f"d_k={creating(marker)}")),
        renamed('"linear"', lambda marker: json.dumps(f"linear = {creating(marker)}\nlinear")),
        renamed("layer.weight", lambda marker: json.dumps(f'l"), {creating(marker)}, ("')[1:-1]),
        in_graph(evil_argument_name),
        in_graph(evil_module_names),
    ],
)
def test_a_text_that_could_be_executed_is_refused(
    edit: Edit, rewritten: Callable[..., Path], tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match="is not read: ") as failure:
        read(rewritten(edit))
    assert failure.value.hint is not None
    assert "\n" not in failure.value.message
    assert not (tmp_path / "ran").exists()


def test_a_trace_that_names_another_kind_of_file_is_dropped(rewritten: Callable[..., Path]) -> None:
    def change(_: Any, graph: Any, __: Path) -> None:
        graph["nodes"][0]["metadata"]["stack_trace"] = 'File "/etc/shadow", line 1, in forward\n    y = x'

    # Reports quote the line that a trace names.
    traces = [node.meta.get("stack_trace", "") for node in read(rewritten(in_graph(change))).graph.nodes]
    assert any("test_saved_programs.py" in trace for trace in traces)
    assert not any("shadow" in trace for trace in traces)


# Archives.


def test_an_archive_that_lies_is_refused(rewritten: Callable[..., Path], tmp_path: Path) -> None:
    def climbs(entries: Entries, _: Path) -> None:
        entries["../../outside"] = b"x"

    with pytest.raises(ModelError, match="an entry is named"):
        read(rewritten(climbs))

    def bomb(entries: Entries, _: Path) -> None:
        entries["data/weights/weight_0"] = bytes(2**24)

    with pytest.raises(ModelError, match="compressed"):
        read(rewritten(bomb, compression=zipfile.ZIP_DEFLATED))
    path = rewritten(lambda *_: None)
    content = path.read_bytes()
    for size in (10, len(content) // 2, len(content) - 30):
        path.write_bytes(content[:size])
        with pytest.raises(ModelError):
            read(path)
    path = rewritten(lambda *_: None)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr(f"net/{GRAPH}", b"{}")
    with pytest.raises(ModelError, match="two of its entries"):
        read(path)


def test_entries_over_one_another_are_refused(rewritten: Callable[..., Path]) -> None:
    # A central directory whose entries all point at the largest one's data: many times the file when read.
    path = rewritten(lambda entries, _: entries.update({f"data/extra/{i}": bytes(200_000) for i in range(2)}))
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        first = archive.getinfo("net/data/extra/0").header_offset
        second = archive.getinfo("net/data/extra/1").header_offset
    del content[second : second + 200_000 + 30 + len("net/data/extra/1")]
    end = content.rindex(b"PK\x05\x06")
    start = int.from_bytes(content[end + 16 : end + 20], "little")
    moved = start - (200_000 + 30 + len("net/data/extra/1"))
    content[end + 16 : end + 20] = moved.to_bytes(4, "little")
    at = content.index(b"net/data/extra/1", moved) - 4
    content[at : at + 4] = first.to_bytes(4, "little")
    path.write_bytes(bytes(content))
    with pytest.raises(ModelError, match="larger than the file"):
        read(path)


def test_weights_that_are_not_there_take_no_memory(rewritten: Callable[..., Path]) -> None:
    def edit(entries: Entries, _: Path) -> None:
        name = "data/weights/model_weights_config.json"
        config = json.loads(entries[name])
        meta = config["config"]["layer.weight"]["tensor_meta"]
        meta |= {"sizes": [{"as_int": 10**6}] * 2, "strides": [{"as_int": 10**6}, {"as_int": 1}]}
        entries[name] = json.dumps(config).encode()
        entries["data/weights/weight_0"] = b""

    with pytest.raises(ModelError, match="no data for a tensor of the sizes"):
        read(rewritten(edit))


# Ordinary files.


@pytest.mark.filterwarnings("ignore:No complete tensor")  # parts of a buffer are saved whole
def test_a_program_is_read_as_pytorch_reads_it(tmp_path: Path) -> None:
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(10, 4)
            self.head = torch.nn.Linear(4, 10, bias=False)
            self.head.weight = self.embedding.weight  # tied
            self.blocks = torch.nn.ModuleDict({"a-b": torch.nn.Linear(10, 10), "c d": torch.nn.BatchNorm1d(10)})
            self.register_buffer("wide", torch.arange(10.0).expand(3, 10))
            self.register_buffer("turned", torch.randn(10, 3).t())
            self.register_buffer("empty", torch.zeros(0, 4))
            self.register_buffer("low", torch.randn(10, dtype=torch.bfloat16))
            self.register_buffer("flag", torch.tensor(True))
            self.register_buffer("scratch", torch.ones(10), persistent=False)

        def forward(self, i: Any, *, more: Any) -> Any:
            y = self.blocks["c d"](self.blocks["a-b"](self.head(self.embedding(i))))
            y = y * self.low + self.scratch + torch.tensor([float("inf")] * 10) + (self.wide + self.turned)[0]
            return {
                "y": torch.cat([y, y]),
                "rest": (
                    torch.cond(more["b"].sum() > 0, torch.sin, torch.cos, (more["a"],)),
                    [more["b"], None],
                    self.empty,
                ),
            }

    path = tmp_path / "net.pt2"
    rows = torch.export.Dim("rows")
    more = {"a": torch.ones(3), "b": torch.ones(2)}
    program = torch.export.export(
        Net(),
        (torch.zeros(6, dtype=torch.long),),
        {"more": more},
        dynamic_shapes={"i": {0: rows}, "more": {"a": None, "b": None}},
    )
    torch.export.save(program, path, extra_files={"notes.txt": "mine"})
    ours, theirs = read(path), torch.export.load(path)
    # Names of symbols are chosen anew, as are those of graphs in graphs.
    assert str(ours.graph_signature) == str(theirs.graph_signature)
    assert [str(node.target) for node in ours.graph.nodes] == [str(node.target) for node in theirs.graph.nodes]
    for mine, its in ((ours.state_dict, theirs.state_dict), (ours.constants, theirs.constants)):
        assert list(mine) == list(its)
        for name, tensor in its.items():
            assert type(mine[name]) is type(tensor)
            assert mine[name].dtype == tensor.dtype
            assert mine[name].stride() == tensor.stride()
            assert torch.equal(mine[name], tensor)
    tied = [ours.state_dict[name].untyped_storage().data_ptr() for name in ("embedding.weight", "head.weight")]
    assert tied[0] == tied[1]
    found = analysed(path)
    assert found.batch == 6
    assert [value.shape for value in found.graph(8).outputs] == [(16, 10), (3,), (2,), (0, 4)]


def test_a_file_without_example_inputs_has_the_smallest_batch(rewritten: Callable[..., Path]) -> None:
    def edit(entries: Entries, _: Path) -> None:
        entries[SAMPLES] = b""
        program = json.loads(entries[GRAPH])

        def forget(part: Any) -> None:
            if isinstance(part, dict):
                part.pop("hint", None)
            for item in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
                forget(item)

        forget(program)
        entries[GRAPH] = json.dumps(program).encode()

    assert analysed(rewritten(edit)).batch == 4


def test_a_container_of_an_unknown_class_is_read_as_a_tuple(rewritten: Callable[..., Path]) -> None:
    edit = with_form(
        '{"type": "builtins.dict", "context": "[\\"k\\"]"', lambda _: '{"type": "their.Pair", "context": "9"'
    )
    assert len(read(rewritten(edit)).graph_signature.user_inputs) == 2


@pytest.mark.parametrize("evil", ["", "state_dict", "constants", "example_inputs"])
def test_the_older_format_is_read(evil: str, saved: Path, tmp_path: Path) -> None:
    import torch
    from torch._export.serde.schema import SCHEMA_VERSION
    from torch._export.serde.serialize import serialize

    parts = serialize(torch.export.load(saved))
    path = tmp_path / "older.pt2"
    content = {
        "serialized_exported_program.json": parts.exported_program,
        "serialized_state_dict.pt": parts.state_dict,
        "serialized_constants.pt": parts.constants,
        "serialized_example_inputs.pt": parts.example_inputs,
        "version": ".".join(map(str, SCHEMA_VERSION)).encode(),
    }
    if evil:
        content[f"serialized_{evil}.pt"] = pickled(tmp_path / "ran")
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    if evil in ("", "example_inputs"):
        found = analysed(path)
        assert (found.batch, found.parameters) == (5, 20)
    else:
        with pytest.raises(ModelError, match="is a pickle, not plain data"):
            read(path)
    assert not (tmp_path / "ran").exists()
