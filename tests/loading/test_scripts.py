"""Scripts as users have them: they train where they are executed, and name their model as they like."""

import json
import os
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from analyzer.cli import run_command_line
from analyzer.errors import InputError, ModelError
from analyzer.loading.load import load
from analyzer.loading.model_reference import parse_reference
from analyzer.loading.python import first_forward
from analyzer.loading.python.example_inputs import resolve_inputs
from analyzer.loading.python.input_spec import parse_input
from analyzer.loading.python.model_weights import ValuedWeights, cuda_is_elsewhere
from analyzer.loading.python.user_model import UserModel, load_user_model

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
        loss = net(torch.ones(5, 4)).sum()
        loss.backward()
        opt.step()
        open("last.pt", "w").write(str(step))
    torch.save(net.state_dict(), "final.pt")
"""
GUARDED = """
    class Net(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.first = nn.Linear(width, 3)
        def forward(self, x, *, scale): return self.first(x) * scale
    def main():
        net = Net(7)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        {}
        open("after", "w").close()
    if __name__ == "__main__":
        main()
"""


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., UserModel]:
    monkeypatch.chdir(tmp_path)

    def build(code: str, behind: str = "", *inputs: str, weights: ValuedWeights = "real") -> UserModel:
        Path("train.py").write_text(HEAD + textwrap.dedent(code))
        reference = parse_reference(f"train.py:{behind}" if behind else "train.py")
        return load_user_model(reference, weights=weights, specs=[*map(parse_input, inputs)])

    return build


def test_a_script_is_executed_up_to_the_first_forward_and_trains_nothing(
    user: Callable[..., UserModel], tmp_path: Path
) -> None:
    found = user(TRAINED)
    assert (found.name, found.model.in_features) == ("net", 4)
    assert found.model.weight.grad is None
    assert not [*tmp_path.glob("*.pt")]
    # Line 4 of HEAD is the last of it; the call is the sixth line of what follows, after an empty one.
    assert "first forward of net (line 11 of train.py: `loss = net(torch.ones(5, 4)).sum()`)" in found.notes[0]
    inputs = resolve_inputs(found, [], None)
    assert (inputs.batch, tuple(inputs.arguments[0].shape), inputs.origin) == (5, (5, 4), "script")
    assert resolve_inputs(found, [], 12).arguments[0].shape == (12, 4)


def test_a_report_has_the_notes_on_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(HEAD + textwrap.dedent(TRAINED))
    notes = " ".join(load(parse_reference("train.py"), use_cache=False).notes)
    assert "The script was executed up to the first forward of net" in notes


# Statements of a script -> the shape and the scale that its first forward has; each batch is of 6 rows of 7.
@pytest.mark.parametrize(
    "statements",
    [
        "net(torch.ones(6, 7), scale=2.0).sum().backward()",
        "nn.DataParallel(net)(torch.ones(6, 7), scale=2.0)",
        "torch.compile(net)(torch.ones(6, 7), scale=2.0)",
        "net.forward(torch.ones(6, 7), scale=2.0)",
        "torch.onnx.export(net, (torch.ones(6, 7),), 'out.onnx', kwargs={'scale': 2.0})",
        "net.to('cuda')(torch.ones(6, 7).pin_memory().to('cuda'), scale=2.0)",
        # A loss and a network that no optimizer trains are called before.
        """
        nn.MSELoss()(torch.ones(1), torch.ones(1))
        nn.Linear(2, 2)(torch.ones(1, 2))
        net(torch.ones(6, 7), scale=2.0)
        """,
        "torch.multiprocessing.spawn(lambda rank: net(torch.ones(6, 7), scale=2.0), nprocs=2)",
        """
        for rows in torch.utils.data.DataLoader(torch.ones(8, 7), batch_size=6, shuffle=True):
            net(rows, scale=2.0)
        """,
        """
        for step in range(3):
            try: net(torch.ones(6, 7), scale=2.0).sum().backward()
            except: pass  # the end of the run too
        """,
        """
        import threading, time
        thread = threading.Thread(target=lambda: net(torch.ones(6, 7), scale=2.0))
        thread.start()
        thread.join()
        time.sleep(0.5)
        """,
    ],
)
def test_what_a_script_calls_its_model_with_are_the_inputs(
    user: Callable[..., UserModel], tmp_path: Path, statements: str
) -> None:
    found = user(GUARDED.format(textwrap.indent(textwrap.dedent(statements).strip(), " " * 8).strip()))
    assert type(found.model).__name__ == "Net"
    inputs = resolve_inputs(found, [], None)
    assert (inputs.arguments[0].shape, dict(inputs.keywords)) == ((6, 7), {"scale": 2.0})
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".py"] == []


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("pass", "Run as a script it calls no model."),
        ("torch.ones(1, requires_grad=True).sum().backward()", "it calls no model before it trains."),
        ("torch.load('data.pt')", "No such file or directory: 'data.pt'"),
        ("import os; os._exit(0)", "SystemExit: 0"),
        ("import argparse; p = argparse.ArgumentParser(); p.add_argument('--n', required=True); p.parse_args()",
         "Give the script its arguments after --"),
        ("input()", "EOFError"),
    ],
)  # fmt: skip
def test_a_script_that_reaches_no_forward_says_why(
    user: Callable[..., UserModel], statement: str, why: str
) -> None:
    with pytest.raises(ModelError, match=r"Net needs arguments \(width\)") as caught:
        user(GUARDED.format(statement))
    assert why in (caught.value.hint or "")
    assert "train.py:Net --arg width=..." in (caught.value.hint or "")


def test_a_script_that_loops_ends_with_the_line_at_work(
    user: Callable[..., UserModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_forward, "LIMIT_S", 0.5)
    with pytest.raises(ModelError, match=r"within 0 s: line 5 of train\.py is at work \(`while True: pass`\)"):
        user("while True: pass")


def test_a_forked_process_ends_at_its_first_forward_too(user: Callable[..., UserModel], tmp_path: Path) -> None:
    user("""
        import os
        net = nn.Linear(2, 2)
        child = os.fork()
        net(torch.ones(1, 2))
        open("after", "w").close()
    """)
    os.wait()
    assert not (tmp_path / "after").exists()


def test_nothing_is_written_once_the_run_has_ended(user: Callable[..., UserModel], tmp_path: Path) -> None:
    (tmp_path / "last.pt").write_text("of the user")
    user("""
        net = nn.Linear(2, 2)
        try:
            net(torch.ones(1, 2)).sum().backward()
        except BaseException:
            open("caught", "w").close()
        finally:
            torch.save(net.state_dict(), "last.pt")
    """)
    assert (tmp_path / "last.pt").read_text() == "of the user"
    assert not (tmp_path / "caught").exists()


def test_a_transform_that_is_a_module_may_be_called_in_a_loaders_process(
    user: Callable[..., UserModel],
) -> None:
    found = user("""
        class Rows(torch.utils.data.Dataset):
            flip = nn.Linear(3, 3)
            def __len__(self): return 8
            def __getitem__(self, index): return self.flip(torch.ones(3)).detach()
        if __name__ == "__main__":
            net = nn.Linear(3, 2)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            for rows in torch.utils.data.DataLoader(Rows(), batch_size=4, num_workers=1):
                net(rows)
    """)
    assert resolve_inputs(found, [], None).arguments[0].shape == (4, 3)


def test_a_process_in_a_fresh_interpreter_trains_nothing_either(
    user: Callable[..., UserModel], tmp_path: Path
) -> None:
    found = user("""
        def train(rank, path):
            net = nn.Linear(5, 2)
            net(torch.ones(6, 5)).sum().backward()
            open(path, "w").close()
        if __name__ == "__main__":
            process = torch.multiprocessing.get_context("spawn").Process(target=train, args=(0, "after"))
            process.start()
            process.join()
    """)
    assert resolve_inputs(found, [], None).arguments[0].shape == (6, 5)
    assert not (tmp_path / "after").exists()


@pytest.mark.parametrize("step", ["net(torch.ones(1, 2)).sum().backward()", "optimizer.step()"])
def test_a_function_that_trains_what_it_builds_is_an_error(user: Callable[..., UserModel], step: str) -> None:
    with pytest.raises(ModelError, match=r"build_model\(\) trains the model"):
        user(f"""
            def build_model():
                net = nn.Linear(2, 2)
                optimizer = torch.optim.SGD(net.parameters())
                {step}
                return net
        """)


def test_a_call_of_forward_itself_gives_its_arguments_too(user: Callable[..., UserModel]) -> None:
    found = user("""
        class Net(nn.Module):
            def __init__(it):
                super().__init__()
                it.layer = nn.Linear(3, 2)
            def forward(it, *rows, scale=1.0, **rest):
                return it.layer(rows[0] + rest["more"]) * scale
        net = Net()
        net.forward(torch.ones(7, 3), scale=torch.ones(7, 2), more=torch.ones(7, 3))
    """)
    inputs = resolve_inputs(found, [], None)
    assert inputs.arguments[0].shape == (7, 3)
    assert {name: tuple(tensor.shape) for name, tensor in inputs.keywords.items()} == {
        "scale": (7, 2),
        "more": (7, 3),
    }


def test_arguments_that_forward_has_assigned_anew_are_not_its_inputs(user: Callable[..., UserModel]) -> None:
    found = user("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(12, 2)
            def forward(self, image):
                image = image.flatten(1)
                return self.layer(image)
        net = Net()
        net.forward(torch.ones(7, 3, 4))
    """)
    assert found.forward is not None
    assert found.forward.arguments is None


def test_what_other_threads_do_goes_on(user: Callable[..., UserModel]) -> None:
    layer, steps, end = torch.nn.Linear(2, 2), [0], threading.Event()

    def work() -> None:
        while not end.is_set():
            layer(torch.ones(1, 2)).sum().backward()
            steps[0] += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        found = user("""
            import time
            net = nn.Linear(3, 2)
            time.sleep(0.2)
            net(torch.ones(4, 3))
        """)
        during = steps[0]
        while steps[0] == during and thread.is_alive():
            time.sleep(0.01)
    finally:
        end.set()
        thread.join()
    assert steps[0] > during
    assert resolve_inputs(found, [], None).arguments[0].shape == (4, 3)


def test_two_files_at_once_leave_nothing_patched(user: Callable[..., UserModel], tmp_path: Path) -> None:
    before = (torch.nn.Module.__call__, torch.autograd.backward, os._exit, torch.save)
    file = tmp_path / "both.py"
    file.write_text("import torch, time\nnet = torch.nn.Linear(3, 2)\ntime.sleep(0.2)\nnet(torch.ones(4, 3))\n")
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(load_user_model, parse_reference(str(file)), weights="real") for _ in range(2)]
    assert all(run.result().forward is not None for run in runs)
    assert before == (torch.nn.Module.__call__, torch.autograd.backward, os._exit, torch.save)


def test_an_empty_batch_is_passed_over(user: Callable[..., UserModel]) -> None:
    found = user("net = nn.Linear(4, 2)\nnet(torch.ones(0, 4))\nnet(torch.ones(3, 4))")
    assert resolve_inputs(found, [], None).batch == 3


def test_a_packed_sequence_is_refused(user: Callable[..., UserModel]) -> None:
    found = user("""
        net = nn.LSTM(8, 16)
        net(nn.utils.rnn.pack_sequence([torch.ones(5, 8), torch.ones(3, 8)]))
    """)
    with pytest.raises(InputError, match="packed sequence"):
        resolve_inputs(found, [], None)


def test_a_script_that_prints_much_is_cut_short(
    user: Callable[..., UserModel], capsys: pytest.CaptureFixture[str]
) -> None:
    user("for step in range(2000): print('x' * 99)\nmodel = nn.Linear(2, 2)", weights="meta")
    shown = capsys.readouterr()
    assert (shown.out, len(shown.err) < 70_000) == ("", True)
    assert "The rest of the script's output is left out." in shown.err


def test_the_batch_of_a_sequence_first_model_is_its_second_axis(user: Callable[..., UserModel]) -> None:
    found = user("""
        class Tagger(nn.Module):
            def __init__(self):
                super().__init__()
                self.table, self.cells = nn.Embedding(9, 5), nn.LSTM(5, 5)
            def forward(self, ids, state): return self.cells(self.table(ids), state)
        Tagger()(torch.ones(11, 3, dtype=torch.long), (torch.zeros(1, 3, 5), torch.zeros(1, 3, 5)))
    """)
    inputs = resolve_inputs(found, [], None)
    assert (inputs.batch, set(inputs.batch_axes.values())) == (3, {(1,)})
    ids, state = resolve_inputs(found, [], 8).arguments
    assert (ids.shape, state[0].shape) == ((11, 8), (1, 8, 5))


def test_a_name_waits_for_its_own_forward(user: Callable[..., UserModel]) -> None:
    code = """
        class Net(nn.Linear): pass
        def main():
            other, net = Net(4, 4), Net(6, 6)
            opt = torch.optim.SGD([*other.parameters(), *net.parameters()], lr=0.1)
            other(torch.ones(2, 4)).sum().backward()
            opt.step()
            net(torch.ones(3, 6)).sum().backward()
        if __name__ == "__main__":
            main()
    """
    assert user(code).model.in_features == 4
    found = user(code, "net")
    assert (found.model.in_features, resolve_inputs(found, [], None).batch) == (6, 3)


def test_what_follows_two_dashes_are_the_scripts_own_arguments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.py"
    path.write_text(HEAD + "import sys\nmodel = nn.Linear(int(sys.argv[2]), 2)")
    command = [str(path), "--no-run", "--format", "json", "--output", "-", "--", "--width", "9"]
    assert run_command_line(command) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["model"]["parameters"] == 9 * 2 + 2
    # The command that asks the same again gives them too.
    assert record["invocation"]["options"]["script-arg"] == ["--width", "9"]


def test_a_file_that_takes_long_tells_the_line_that_is_at_work(
    user: Callable[..., UserModel], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(first_forward, "NOTICE_S", 0.05)
    user("import time\nwait = time.sleep\nwait(0.6)\nmodel = nn.Linear(2, 2)")
    told = capsys.readouterr().err
    assert "executing train.py takes long: line 7 is at work (`wait(0.6)`)" in told
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


def test_random_weights_are_the_same_in_each_execution(user: Callable[..., UserModel]) -> None:
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
