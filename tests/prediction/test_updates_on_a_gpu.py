"""The optimizer's step on a GPU: what PyTorch launches there, and what that moves."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from analyzer import analyze
from analyzer.costs import count
from analyzer.devices.catalogue import device
from analyzer.graph import DTYPES, Graph, Node, Tensor
from analyzer.loading.training.recipe import find_updates
from analyzer.ort.execution import Group
from analyzer.prediction import predict, workload
from analyzer.prediction.parameter_updates import update_totals
from analyzer.training_operators import DOMAIN, implementation_of, passes_of

ADAM = torch.optim.Adam
OPTIMIZERS = [
    (ADAM, {}),
    (ADAM, {"weight_decay": 0.1}),
    (torch.optim.AdamW, {}),
    (torch.optim.SGD, {"lr": 0.1}),
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    (torch.optim.RMSprop, {}),
    (torch.optim.RMSprop, {"momentum": 0.9, "weight_decay": 0.1}),
    (torch.optim.Adagrad, {}),
    (torch.optim.Adagrad, {"weight_decay": 0.1}),
    (torch.optim.Adamax, {}),
    (torch.optim.Adamax, {"weight_decay": 0.1}),
    (torch.optim.Adadelta, {}),
    (torch.optim.Adadelta, {"weight_decay": 0.1}),
]


class Functions(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes lists, tensors read and tensors written of each function over lists of tensors of some size."""

    def __init__(self, size: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.size = size
        self.seen: list[tuple[int, int, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        lists = [
            arg for arg in args if isinstance(arg, (list, tuple)) and arg and isinstance(arg[0], torch.Tensor)
        ]
        if name.startswith("_foreach_") and lists[0][0].numel() == self.size:
            # What is made is a list of its own; a list that is given twice is read once.
            made = 0 if name.endswith("_") else 1
            self.seen.append((len(lists) + made, len({given[0].data_ptr() for given in lists}), 1))
        return func(*args, **(kwargs or {}))


def updates_of(optimizer: Any, options: dict[str, Any], sizes: list[int]) -> Graph:
    """The optimizer's part of a step, for parameters of these sizes."""
    named = [(f"p{index}", torch.nn.Parameter(torch.empty(0))) for index in range(len(sizes))]
    user = cast(Any, SimpleNamespace(module=SimpleNamespace(optimizer=(optimizer, options))))
    updates, _ = find_updates(user, named)
    nodes = []
    for index, size in enumerate(sizes):
        update = updates[f"p{index}"]

        def like(name: str, size: int = size, index: int = index) -> Tensor:
            return Tensor(name=f"p{index}.{name}", shape=(size,), dtype=DTYPES["float32"])

        numbers = [Tensor(name=name, shape=(), dtype=DTYPES["float32"]) for name in ("step_size", "root")]
        corrections = numbers if "beta1" in update.options else []
        nodes.append(
            Node(
                index=index,
                name=f"update{index}",
                op_type=update.op_type,
                domain=DOMAIN,
                version=1,
                inputs=(like("w"), like("g"), *map(like, update.states), *corrections),
                outputs=(like("w.new"), *(like(f"{state}.new") for state in update.states)),
                attributes=dict(update.options),
                phase="optimizer",
            )
        )
    made = {tensor.name for node in nodes for tensor in node.present_outputs}
    read = {tensor.name: tensor for node in nodes for tensor in node.present_inputs}
    return Graph(
        name="updates",
        nodes=tuple(nodes),
        inputs=tuple(read.values()),
        outputs=tuple(tensor for node in nodes for tensor in node.present_outputs if tensor.name in made),
        initializers=(),
        opsets={"ai.onnx": 20, DOMAIN: 1},
    )


def on_a100(graph: Graph) -> list[Any]:
    groups = tuple(
        Group(session="cuda", name=node.name, op_type=node.op_type, members=(node.index,), provider="cuda")
        for node in graph.nodes
    )
    return list(predict(workload(graph, count(graph), groups), device("a100-sxm-80gb"), precision="fp32"))


@pytest.mark.parametrize(("optimizer", "options"), OPTIMIZERS)
def test_passes_over_memory_are_those_that_pytorchs_foreach_makes(
    optimizer: Any, options: dict[str, Any]
) -> None:
    (node,) = updates_of(optimizer, options, [64]).nodes
    parameter = torch.nn.Parameter(torch.ones(64))
    real = optimizer([parameter], foreach=True, **options)
    for _ in range(2):  # SGD's first step makes its momentum
        parameter.grad = torch.ones(64)
        with Functions(64) as functions:
            real.step()
    assert [(one.lists, one.reads, one.writes) for one in passes_of(node)] == functions.seen


def test_a_fused_adam_reads_four_tensors_and_writes_three() -> None:
    graph = updates_of(ADAM, {"fused": True}, [1000, 24])
    # Parameter, gradient and both moments read; parameter and both moments written: 7 x 4 bytes an element.
    assert update_totals(graph) == (pytest.approx(1), pytest.approx(7 * 4 * 1024))


def test_a_fused_sgd_with_momentum_reads_three_tensors_and_writes_two() -> None:
    graph = updates_of(torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "fused": True}, [1000])
    assert update_totals(graph) == (pytest.approx(1), pytest.approx(5 * 4 * 1000))


def test_foreach_adam_moves_eighteen_tensors_in_seven_launches() -> None:
    # lerp 3, mul 2, addcmul 3, sqrt 2, div 2, add 2, addcdiv 4 tensors of four bytes an element.
    graph = updates_of(ADAM, {}, [64] * 200)
    assert update_totals(graph) == (pytest.approx(7), pytest.approx(18 * 4 * 64 * 200))


@pytest.mark.parametrize(
    ("sizes", "launches"),
    [
        # 336 tensors fit a launch over three lists, 448 over two, 770 over one: addcmul and addcdiv twice.
        ([64] * 400, 9),
        # 2,240 chunks of 65,536 elements fit a launch: one more chunk is a launch more for each function.
        ([2240 * 65536 + 1], 14),
    ],
)
def test_launches_are_as_many_as_their_arguments_hold(sizes: list[int], launches: int) -> None:
    assert update_totals(updates_of(ADAM, {}, sizes))[0] == pytest.approx(launches)


def test_without_foreach_every_parameter_has_its_own_launches() -> None:
    graph = updates_of(ADAM, {"foreach": False}, [64] * 20)
    assert update_totals(graph) == (pytest.approx(7 * 20), pytest.approx(18 * 4 * 64 * 20))


@pytest.mark.parametrize(
    ("options", "implementation"),
    [
        ({}, "foreach"),
        ({"fused": True}, "fused"),
        ({"foreach": True}, "foreach"),
        ({"foreach": False}, "for-loop"),
        # torch/optim/adam.py chooses foreach only where neither is said.
        ({"fused": False}, "for-loop"),
    ],
)
def test_the_file_says_which_implementation_runs(options: dict[str, Any], implementation: str) -> None:
    (node,) = updates_of(ADAM, options, [64]).nodes
    assert implementation_of(node) == implementation


def test_updates_of_large_parameters_are_bound_by_memory_and_fused_ones_take_28_of_72_bytes() -> None:
    large = [2**27]  # half a gigabyte: no cache holds it, and launches are nothing beside it
    (foreach,), (fused,) = (on_a100(updates_of(ADAM, options, large)) for options in ({}, {"fused": True}))
    assert (foreach.bound, fused.bound) == ("memory", "memory")
    assert fused.value / foreach.value == pytest.approx(28 / 72, rel=0.01)


def test_a_bias_beside_a_large_parameter_costs_next_to_nothing() -> None:
    alone = sum(one.value for one in on_a100(updates_of(ADAM, {}, [2**24])))
    *_, bias = together = on_a100(updates_of(ADAM, {}, [2**24, *[64] * 100]))
    assert bias.bound == "memory"
    # Of a run's own cost each group has its share, so that 100 more change what is left of rounding alone.
    assert sum(one.value for one in together) == pytest.approx(alone, rel=0.001)


def test_all_parameters_go_through_memory_in_each_pass_however_small_each_is() -> None:
    many, one = (on_a100(updates_of(ADAM, {"fused": True}, sizes)) for sizes in ([2**20] * 64, [2**26]))
    assert math.fsum(part.value for part in many) == pytest.approx(one[0].value, rel=0.001)


def test_a_step_says_how_its_optimizer_is_priced(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANALYZER_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "model.py").write_text(
        "import torch\n"
        "model = torch.nn.Linear(1024, 1024)\n"
        "optimizer = (torch.optim.Adam, {'fused': True})\n"
        "def example_inputs(batch=8): return (torch.randn(batch, 1024),)\n"
    )
    analysis = analyze(tmp_path / "model.py", training=True, run=False, gpu="a100-sxm-80gb")
    step = analysis.training
    assert step is not None
    assert (step.optimizer_kernels, step.optimizer_launches) == ("fused", 1)
    assert step.optimizer_moved_bytes == 28 * (1024 * 1024 + 1024)
    assert "1 launch moves 28 B a parameter" in step.optimizer_note
    updates = [one for one in analysis.operators if one.op_type == "Adam"]
    assert [one.gpu.bound for one in updates if one.gpu] == ["memory", "memory"]
    # The step's count, powers and roots are Python's numbers: no kernel.
    numbers = [one for one in analysis.operators if one.phase == "optimizer" and one.op_type != "Adam"]
    assert numbers
    assert all(one.gpu is not None and one.gpu.overhead.floor_s == 0 for one in numbers)
