"""Scripts as users have them: they train where they are executed, and name their model as they like."""

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from analyzer.errors import ModelError
from analyzer.loading.load import load
from analyzer.loading.model_reference import parse_reference
from analyzer.loading.python import user_module
from analyzer.loading.python.example_inputs import resolve_inputs
from analyzer.loading.python.input_spec import parse_input
from analyzer.loading.python.model_weights import ValuedWeights
from analyzer.loading.python.untraceable_calls import cuda_is_elsewhere
from analyzer.loading.python.user_model import UserModel, load_user_model
from analyzer.loading.python.user_source.training_loops import before_training

HEAD = """
import copy
import torch
from torch import nn
"""
TRAINED = """
    class Net(nn.Linear):
        def __init__(self, width): super().__init__(width, width)
    net = Net(4)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(3):
        loss = net(torch.ones(1, 4)).sum()
        loss.backward()
        opt.step()
        open("last.pt", "w").write(str(step))
    torch.save(net.state_dict(), "final.pt")
    def example_inputs(batch): return torch.ones(batch, 4)
    def threshold(x, least=float(loss)): return x > least
"""


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., UserModel]:
    monkeypatch.chdir(tmp_path)

    def build(code: str, behind: str = "", *inputs: str, weights: ValuedWeights = "real") -> UserModel:
        Path("train.py").write_text(HEAD + textwrap.dedent(code))
        reference = parse_reference(f"train.py:{behind}" if behind else "train.py")
        return load_user_model(reference, weights=weights, specs=[*map(parse_input, inputs)])

    return build


def test_a_training_loop_of_the_module_level_is_not_executed_and_a_note_says_so(
    user: Callable[..., UserModel], tmp_path: Path
) -> None:
    found = user(TRAINED)
    assert found.name == "net"
    assert found.model.weight.grad is None
    assert not [*tmp_path.glob("*.pt")]
    # Line 4 of HEAD is the last of it; the loop is the fifth line of what follows, after an empty one.
    assert "train.py was executed up to line 10, where it trains: `for step in range(3):`" in found.notes[-1]


def test_what_is_defined_behind_the_loop_is_there_but_for_what_needs_the_loop(
    user: Callable[..., UserModel],
) -> None:
    found = user(TRAINED)
    assert found.module.example_inputs(2).shape == (2, 4)
    assert not hasattr(found.module, "threshold")


def test_a_report_has_the_notes_on_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(HEAD + textwrap.dedent(TRAINED))
    notes = " ".join(load(parse_reference("train.py"), use_cache=False).notes)
    assert "The model is the variable net of train.py." in notes
    assert "was executed up to line 10" in notes


def test_a_module_that_the_file_imports_trains_nothing_either(
    user: Callable[..., UserModel], tmp_path: Path
) -> None:
    (tmp_path / "trained_beside_it.py").write_text(HEAD + textwrap.dedent(TRAINED))
    found = user("from trained_beside_it import Net\ndef build_model(): return Net(5)")
    assert found.model.in_features == 5
    assert not [*tmp_path.glob("*.pt")]
    # Nothing of a file that was cut is kept for whoever imports it next.
    assert not [*tmp_path.rglob("trained_beside_it*.pyc")]


def test_what_is_missing_may_stand_behind_the_loop(user: Callable[..., UserModel]) -> None:
    with pytest.raises(ModelError, match="there is no final") as caught:
        user(TRAINED + "    final = copy.deepcopy(net)\n", "final")
    assert "executed up to line 10" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("net = 1\nfor x in y:\n    net.loss(x).backward()", 2),
        ("while True:\n    accelerator.backward(loss)", 1),
        ("def train():\n    for x in y: loss(x).backward()\ntrain()", 3),
        ("def step(x): loss(x).backward()\nfor x in y:\n    step(x)", 2),
        ("class T:\n    def run(self):\n        for x in y: x.backward()\nt = T()\nt.run()", 5),
        (
            "class T:\n    def a(self): x.backward()\n    def run(self):\n        while y: self.a()\nT().run()",
            5,
        ),
        ("def main():\n    t = Trainer(net)\n    t.fit(data)\nmain()", 4),
        ("import lightning as L\nL.Trainer(max_epochs=3).fit(net, data)", 2),
        ("with run():\n    net = 1\n    for x in y: x.backward()", 3),
        ("def closure(): loss().backward()\nfor x in y:\n    closure()", 2),
    ],
)
def test_a_statement_that_trains_is_found_in_functions_methods_and_trainers(code: str, line: int) -> None:
    found = before_training(code.encode(), "train.py")
    assert found is not None
    assert found[1] == line


@pytest.mark.parametrize(
    "code",
    [
        "loss = net(x).sum()\nloss.backward()",  # one step, by which a file tries itself
        "def train():\n    for x in y: loss(x).backward()",
        "if __name__ == '__main__':\n    for x in y: x.backward()",
        "class F(torch.autograd.Function):\n    def backward(ctx, g):\n        for x in g: x.sum()",
        "scaler.fit(rows)\nfor x in y: x.forward()  # no backward",
        "class T:\n    def train(self):\n        for x in y: x.backward()\nnet.train()",
        "for x in (: backward",
    ],
)
def test_a_file_that_does_not_train_where_it_is_imported_is_executed_whole(code: str) -> None:
    assert before_training(code.encode(), "train.py") is None


def test_a_with_block_keeps_what_stands_before_its_loop(user: Callable[..., UserModel]) -> None:
    found = user("""
        with torch.enable_grad():
            net = nn.Linear(3, 3)
            for step in range(2):
                net(torch.ones(1, 3)).sum().backward()
            net = None
    """)
    assert found.model.in_features == 3


def test_a_file_that_takes_long_tells_the_line_that_is_at_work(
    user: Callable[..., UserModel], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(user_module, "_SECONDS_UNTIL_TOLD", 0.05)
    user("import time\nwait = time.sleep\nwait(0.6)\nmodel = nn.Linear(2, 2)")
    told = capsys.readouterr().err
    assert "executing train.py takes long: line 7 of its module level is at work (`wait(0.6)`)" in told
    assert "analyzer" not in sys.modules["train"].__dict__


# Variables


def test_a_copy_in_another_variable_is_told_and_the_trained_one_taken(user: Callable[..., UserModel]) -> None:
    found = user("""
        class Net(nn.Linear):
            def __init__(self, width): super().__init__(width, width)
        net = Net(4)
        ema = copy.deepcopy(net)
        shadow, net = net, copy.deepcopy(net)
        criterion = nn.CrossEntropyLoss()
        opt = torch.optim.Adam(net.parameters())
    """)
    assert found.name == "net"
    assert "The model is the variable net of train.py; ema and shadow are others of its class" in found.notes[0]


def test_a_part_of_another_variable_is_no_model_of_its_own(user: Callable[..., UserModel]) -> None:
    found = user("""
        class Net(nn.Module):
            def __init__(self, head):
                super().__init__()
                self.head = head
        head = nn.Linear(3, 3)
        whole = nn.DataParallel(Net(head))
    """)
    assert (found.name, type(found.model).__name__) == ("whole", "Net")


def test_of_several_models_in_variables_the_one_that_is_trained_is_taken(
    user: Callable[..., UserModel],
) -> None:
    code = """
        class Net(nn.Linear):
            def __init__(self, width): super().__init__(width, width)
        teacher, student = Net(9), Net(3)
        opt = torch.optim.SGD(student.parameters(), lr=0.1)
    """
    assert user(code).model.in_features == 3
    with pytest.raises(ModelError, match=r"holds 2 models: teacher \(Net\), student \(Net\)") as caught:
        user(code.replace("student.parameters()", "[*student.parameters(), *teacher.parameters()]"))
    assert "train.py:teacher" in (caught.value.hint or "")


def test_a_network_of_a_library_beside_the_files_own_class_is_not_the_model(
    user: Callable[..., UserModel],
) -> None:
    found = user("""
        judge = nn.Linear(7, 7)
        class Net(nn.Linear):
            def __init__(self): super().__init__(3, 3)
    """)
    assert (found.name, found.model.in_features) == ("Net", 3)


# Classes


PARTS = """
    class Smearing(nn.Module):
        def __init__(self, count=5): super().__init__()
        def forward(self, dist): return dist
    class Act(nn.Module):
        def forward(self, x): return x
    def block(): return nn.Sequential(Act())
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.smearing, self.blocks = Smearing(), block()
        def forward(self, z, pos): return self.blocks(self.smearing(pos))
    class NetLoss(nn.Module):
        def forward(self, outputs, targets): return (outputs - targets).sum()
"""


def test_the_class_that_no_other_builds_is_the_model_and_a_note_says_so(user: Callable[..., UserModel]) -> None:
    found = user(PARTS)
    assert found.name == "Net"
    assert "Net was taken of the 4 models of train.py" in found.notes[0]
    assert "(train.py:Smearing names another)" in found.notes[0]


def test_of_several_whole_models_the_inputs_that_are_given_tell_which(user: Callable[..., UserModel]) -> None:
    code = PARTS + ("    class Other(nn.Module):\n        def forward(self, image): return image\n")
    with pytest.raises(ModelError, match="defines 2 models: Net, Other"):
        user(code)
    assert user(code, "", "z=B:int64", "pos=B,3").name == "Net"
    assert user(code, "", "image=B,3").name == "Other"


def test_a_class_that_another_inherits_from_is_a_model_as_well(user: Callable[..., UserModel]) -> None:
    with pytest.raises(ModelError, match="defines 2 models: Net, Wide"):
        user("""
            class Net(nn.Module):
                def __init__(self, width=2): super().__init__()
                def forward(self, x): return x
            class Wide(Net):
                def __init__(self): super().__init__(width=4)
        """)


def test_where_the_whole_model_needs_arguments_its_parts_are_not_taken_for_it(
    user: Callable[..., UserModel],
) -> None:
    with pytest.raises(ModelError, match=r"Net needs arguments \(width\)") as caught:
        user("""
            class Swish(nn.Module):
                def forward(self, x): return x * x.sigmoid()
            class Net(nn.Module):
                def __init__(self, width):
                    super().__init__()
                    self.act = Swish()
                def forward(self, x): return self.act(x)
        """)
    assert "Swish needs none: train.py:Swish." in (caught.value.hint or "")


# Arguments of the file's own call


CALLED = """
    import argparse
    class Net(nn.Linear):
        def __init__(self, inner, outer, bias=True): super().__init__(inner, outer, bias=bias)
    SCALE = 3
    def options():
        parser = argparse.ArgumentParser()
        parser.add_argument("--hidden", type=int, default=4)
        return parser.parse_args()
    def main():
        args = options()
        net = Net(2 * args.hidden, outer=SCALE, bias=False)
"""


def test_a_class_is_built_as_the_files_own_call_builds_it_and_a_note_says_how(
    user: Callable[..., UserModel],
) -> None:
    found = user(CALLED)
    assert (found.model.in_features, found.model.out_features, found.model.bias) == (2 * 4, 3, None)
    assert (
        "Net was built as line 16 builds it: inner=8, outer=3, bias=False (--arg gives others)." in found.notes
    )


@pytest.mark.parametrize(
    "line",
    [
        "net = Net(unknown(), outer=SCALE)",
        "net = Net(*sizes, 3)",
        "SCALE = unknown(); net = Net(2, SCALE)",  # the function's own name hides the file's
        "net = Net(2, 3, bias=unknown())",
        "net = Net(2, 3); other = Net(4, 5)",
        "net = Net(config.hidden, 3)",  # no command line
    ],
)
def test_where_a_part_of_the_call_is_computed_or_calls_differ_the_arguments_are_asked_for(
    user: Callable[..., UserModel], line: str
) -> None:
    with pytest.raises(ModelError, match="Net needs arguments"):
        user(CALLED.replace("net = Net(2 * args.hidden, outer=SCALE, bias=False)", line))


def test_arguments_that_are_given_stay_and_the_files_call_gives_the_others(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(HEAD + textwrap.dedent(CALLED))
    model: Any = load_user_model(parse_reference(f"{path}:Net(outer=9)"), weights="meta").model
    assert (model.in_features, model.out_features) == (8, 9)


def test_random_weights_are_those_of_the_loop_not_begun(user: Callable[..., UserModel]) -> None:
    first, second = (user(TRAINED).model.state_dict()["weight"] for _ in range(2))
    assert torch.equal(first, second)


# Warnings

LISTED = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(6, 3)
        def forward(self, x):
            warnings.warn("of the trial")
            return self.head(x[[slice(0, 1), slice(0, 6)]])  # PyTorch warns of a list in the place of a tuple
"""


@pytest.mark.filterwarnings("always")
def test_what_is_warned_of_while_inputs_are_but_tried_is_not_shown(
    user: Callable[..., UserModel], recwarn: pytest.WarningsRecorder
) -> None:
    found = user("    import warnings" + LISTED)
    resolve_inputs(found, [], 2)
    assert not [*recwarn]


@pytest.mark.filterwarnings("always")
def test_what_pytorch_warns_of_inside_our_own_lines_is_not_shown(recwarn: pytest.WarningsRecorder) -> None:
    with cuda_is_elsewhere("cpu"):
        listed: Any = [slice(0, 1), slice(0, 3)]
        assert torch.ones(2, 3)[listed].shape == (1, 3)
    assert not [*recwarn]
