"""PyTorch's private names: one module touches them, and where one is missing it says so or does without."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from analyzer.cli import run_command_line
from analyzer.errors import LibraryError
from analyzer.loading import torch_private
from analyzer.loading.load import load
from analyzer.loading.model_reference import parse_reference
from analyzer.loading.training import torch_interfaces

ROOT = Path(__file__).parents[2]
ALLOWED = ROOT / "analyzer" / "loading" / "torch_private.py"

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 4)

    def forward(self, x):
        return torch.relu(self.first(x))

def example_inputs(batch=2):
    return (torch.randn(batch, 6),)
"""


def private(path: str) -> bool:
    """Whether a part of a dotted path has an underscore in front and no second one."""
    return any(re.match(r"_(?!_)", part) for part in path.split("."))


def dotted(node: ast.AST) -> str:
    """``a.b.c`` of an attribute chain, empty for any other expression."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def aliases(tree: ast.AST) -> dict[str, str]:
    """By local name, what of torch it is bound to."""
    found = {"torch": "torch"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {item.asname: item.name for item in node.names if item.asname and is_torch(item.name)}
        elif isinstance(node, ast.ImportFrom) and is_torch(node.module or ""):
            found |= {item.asname or item.name: f"{node.module}.{item.name}" for item in node.names}
        elif isinstance(node, ast.Assign) and is_torch(dotted(node.value)):
            found |= {item.id: dotted(node.value) for item in node.targets if isinstance(item, ast.Name)}
    return found


def is_torch(path: str) -> bool:
    return path.partition(".")[0] == "torch"


def uses(source: str) -> Iterator[str]:
    """Private names of torch in a source: imports, attribute chains, names in strings given to ``getattr``."""
    tree = ast.parse(source)
    bound = aliases(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            paths = [item.name for item in node.names if is_torch(item.name)]
        elif isinstance(node, ast.ImportFrom) and is_torch(node.module or ""):
            paths = [f"{node.module}.{item.name}" for item in node.names]
        elif isinstance(node, ast.Attribute):
            first, _, rest = dotted(node).partition(".")
            paths = [f"{bound[first]}.{rest}"] if first in bound else []
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
            paths = [
                item.value
                for item in node.args[1:2]
                if isinstance(item, ast.Constant) and isinstance(item.value, str)
            ]
            paths = [path for path in paths if path in OF_TORCH]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            paths = [node.value] if re.fullmatch(r"torch(\.\w+)*\._\w+(\.\w+)*", node.value) else []
        else:
            continue
        yield from (path for path in paths if private(path))


# Attributes of PyTorch's objects that have been asked for by name.
OF_TORCH = ("_schema", "_opname", "_orig_mod", "_overloadname", "_namespace", "_parameters", "_buffers")


@pytest.mark.parametrize(
    "source",
    [
        "from torch._decomp import get_decompositions",
        "from torch.utils import _pytree",
        "from torch.nn.modules.batchnorm import _BatchNorm as Norm",
        "import torch._ops as ops",
        "import torch\ntorch._C.DispatchKey",
        "import torch\naten = torch.ops.aten\naten._linalg_det.default",
        "from torch.jit import script as s\ns._enabled",
        "getattr(op, '_schema', None)",
        "import_module('torch.onnx._internal')",
    ],
)
def test_the_search_sees_each_way_to_a_private_name(source: str) -> None:
    assert list(uses(source))


def test_one_module_alone_touches_private_names_of_pytorch() -> None:
    found = {
        str(path.relative_to(ROOT)): names
        for path in sorted((ROOT / "analyzer").rglob("*.py"))
        if path != ALLOWED and (names := sorted(set(uses(path.read_text(encoding="utf-8")))))
    }
    assert found == {}


def test_each_use_names_a_file_of_pytorch_that_is_there() -> None:
    files = set(re.findall(r"\btorch/[\w/]+\.pyi?", ALLOWED.read_text(encoding="utf-8")))
    assert len(files) > 10
    folder = Path(torch.__file__).parent.parent
    assert [file for file in sorted(files) if not (folder / file).exists()] == []


def test_the_package_admits_the_first_tested_release_and_all_later_ones() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    first, _, last = torch_private.TESTED.partition(" to ")
    assert project["optional-dependencies"]["torch"] == [f"torch>={first}"]
    assert torch_private.untested(f"{last}.7+cu132") == ""
    following = f"{last.partition('.')[0]}.{int(last.partition('.')[2]) + 1}"
    assert torch_private.untested(f"{following}.0a0+git123").startswith(
        f"PyTorch {following}.0a0+git123 is newer"
    )


def test_a_release_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.9.1+cpu")
    with pytest.raises(LibraryError, match=r"PyTorch 2\.9\.1\+cpu is too old") as caught:
        torch_private.require_torch()
    assert caught.value.hint == torch_private.PIP_LINE


def test_an_installation_that_lacks_a_library_is_named_by_its_first_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text(
        "raise OSError('libcudart.so.13: cannot open shared object file\\nat 0x7f')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch")
    with pytest.raises(
        LibraryError, match=r"does not import: libcudart\.so\.13: cannot open shared object file\.$"
    ):
        torch_private.require_torch()


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return path


# Module and name that a PyTorch of tomorrow may lack, and whether an export can do without.
MISSING = [
    ("torch.utils._pytree", "tree_leaves", False),
    ("torch.utils._pytree", "tree_flatten", False),
    ("torch.jit._state", "_enabled", True),
    ("torch.nn.modules.transformer", "_detect_is_causal_mask", True),
]


@pytest.mark.parametrize(("module", "name", "does_without"), MISSING)
def test_a_pytorch_without_a_name_is_exit_2_with_a_hint_or_does_without(
    module: str,
    name: str,
    does_without: bool,
    model_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("ANALYZER_CACHE_DIR", str(tmp_path / "cache"))
    found = __import__(module, fromlist=[name])
    monkeypatch.setattr(torch_private, "_looking_up", looking_up_without(found, name))
    if does_without:
        monkeypatch.delattr(found, name)
    given = [str(model_file), "--no-run", "--no-cache", "--gpu", "none", "--format", "json", "--output", "-"]
    status = run_command_line([*given, "--quiet"])
    said = capsys.readouterr().err
    assert status == (0 if does_without else 2)
    if not does_without:
        assert f"lacks an interface that the analysis needs: cannot import name '{name}'" in said
        assert f"torch {torch_private.TESTED}" in said
        assert "Traceback" not in said


def looking_up_without(module: ModuleType, name: str) -> type[Any]:
    """The context of a look-up in which a module lacks a name; outside PyTorch has it, for its own calls."""
    original = torch_private._looking_up

    class Without:
        def __enter__(self) -> None:
            self.outer = original()
            self.outer.__enter__()
            self.value = vars(module).pop(name, None)

        def __exit__(self, *error: Any) -> Any:
            if self.value is not None:
                setattr(module, name, self.value)
            return self.outer.__exit__(*error)

    return Without


def test_an_operator_that_is_gone_is_told_by_its_name() -> None:
    with pytest.raises(LibraryError, match="_no_such_operator"):
        torch_private.operator("_no_such_operator")


@pytest.mark.parametrize(
    ("module", "name", "use"),
    [
        ("torch._subclasses.fake_tensor", "FakeTensorMode", torch_private.fake_tensor_mode),
        ("torch._decomp", "get_decompositions", lambda: torch_private.registered_decompositions(["add"])),
        (
            "torch._functorch._aot_autograd.descriptors",
            "GradAOTOutput",
            lambda: torch_private.describe_output(None),
        ),
        (
            "torch._functorch._aot_autograd.descriptors",
            "PlainAOTInput",
            lambda: torch_private.describe_input(None),
        ),
        (
            "torch.onnx._internal.exporter._core",
            "_translate_fx_graph",
            lambda: torch_private.translate_into(None, None, None),  # type: ignore[arg-type]
        ),
        ("torch.onnx._internal._lazy_import", "onnxscript_apis", lambda: torch_private.at_opset(None, 18)),  # type: ignore[arg-type]
        (
            "torch.onnx._internal.exporter._core",
            "current_tracer",
            lambda: torch_private.emit("", "Relu", []),
        ),
        ("torch._C", "DispatchKey", lambda: torch_private.gradient_kernels({}).__enter__()),
        ("torch._C", "DispatchKey", lambda: torch_private.whole_operators((), ()).__enter__()),
    ],
)
def test_each_missing_name_is_told_by_itself(
    module: str, name: str, use: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(__import__(module, fromlist=[name]), name)
    with pytest.raises(LibraryError, match=name) as caught:
        use()
    assert caught.value.hint is not None
    assert f"torch {torch_private.TESTED}" in caught.value.hint


def test_what_is_put_off_while_a_model_is_traced_is_put_back() -> None:
    from torch.distributions import Distribution
    from torch.export import _trace
    from torch.jit import _state
    from torch.nn.modules import transformer

    before = (_state._enabled.enabled, transformer._detect_is_causal_mask, Distribution._validate_args)
    with (
        torch_private.scripting_disabled(),
        torch_private.causal_masks_by_word(bool),
        torch_private.silent_tracer(),
        torch_private.unchecked_distributions(),
    ):
        inside = (_state._enabled.enabled, transformer._detect_is_causal_mask, Distribution._validate_args)
        assert inside == (False, bool, False)
        assert _trace.print("not seen") is None  # type: ignore[attr-defined]  # put there for the while
    after = (_state._enabled.enabled, transformer._detect_is_causal_mask, Distribution._validate_args)
    assert after == before
    assert "print" not in vars(_trace)


def test_kernels_that_are_replaced_are_put_back() -> None:
    op = torch_private.operator("_linalg_det")
    before = dict(op.py_kernels)
    with torch_private.gradient_kernels({op: len}):
        assert len in op.py_kernels.values()
    assert op.py_kernels == before


def test_translations_are_gathered_once_and_what_one_export_adds_the_next_does_not_have() -> None:
    import torch
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    def translated(x: Any) -> Any:
        return x

    before = vars(ONNXRegistry)["from_torchlib"]
    name = "aten::relu"
    with torch_private.translations_gathered_once():
        first = ONNXRegistry.from_torchlib(opset_version=20)
        first.register_op(torch.ops.aten.relu.default, translated)
        second = ONNXRegistry.from_torchlib(opset_version=20)
        with torch_private.translations_gathered_once():  # of another thread
            pass
        older = ONNXRegistry.from_torchlib(opset_version=18)
    assert vars(ONNXRegistry)["from_torchlib"] is before
    added, *known = first.functions[name]
    assert added.onnx_function is translated
    assert [id(one) for one in second.functions[name]] == [id(one) for one in known]
    assert (first.opset_version, older.opset_version) == (20, 18)
    # What is gathered is what PyTorch gathers.
    afresh = ONNXRegistry.from_torchlib(opset_version=20)
    assert afresh.functions.keys() == second.functions.keys()
    assert [one.onnx_function for one in afresh.functions[name]] == [
        one.onnx_function for one in second.functions[name]
    ]


def test_translations_of_quantized_operators_come_with_the_operators() -> None:
    """In a process of its own: what another test loads stays loaded."""
    script = """
from analyzer.loading import torch_private
from torch.onnx._internal.exporter._registration import ONNXRegistry
def known():
    with torch_private.translations_gathered_once():
        return ONNXRegistry.from_torchlib(opset_version=20).functions.keys()
before = known()
import torch.ao.quantization.fx._decomposed
assert known() == ONNXRegistry.from_torchlib(opset_version=20).functions.keys() != before
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_is_kept_whole_for_a_step_is_taken_apart_in_the_export_after_it() -> None:
    """PyTorch remembers which operators it takes apart; an export fails where it was asked in the block."""
    from torch._export.utils import _collect_all_valid_cia_ops_for_aten_namespace as known
    from torch.export import default_decompositions

    names = torch_interfaces._WHOLE
    known.cache_clear()
    expected = known()
    known.cache_clear()
    with torch_private.whole_operators(names, ["default", "vec"]):
        default_decompositions()
    assert known() == expected


def test_an_onnxscript_without_the_folding_is_told(model_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from onnxscript.optimizer import _constant_folding

    monkeypatch.delattr(_constant_folding, "FoldConstantsPass")
    with pytest.raises(LibraryError, match="onnxscript lacks"):
        load(parse_reference(str(model_file)), use_cache=False)
