"""Which object of a Python file is the model."""

import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analyzer.errors import InputError, ModelError, UsageError
from analyzer.graph import DTYPES
from analyzer.loading.model_reference import parse_reference
from analyzer.loading.python.example_inputs import make_tensor, resolve_inputs
from analyzer.loading.python.input_spec import parse_input
from analyzer.loading.python.model_weights import ValuedWeights
from analyzer.loading.python.user_model import load_user_model

HEAD = """
import torch
from torch import nn
"""


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Any]:
    def build(code: Any, name: Any = None, weights: ValuedWeights = "meta") -> Any:
        path = tmp_path / "user_model.py"
        path.write_text(HEAD + textwrap.dedent(code))
        return load_user_model(parse_reference(f"{path}:{name}" if name else str(path)), weights=weights)

    return build


def test_build_model_comes_before_a_variable_and_a_class(load: Callable[..., Any]) -> None:
    user = load("""
        class Net(nn.Linear):
            def __init__(self): super().__init__(1, 1)
        model = nn.Linear(2, 2)
        def build_model(): return nn.Linear(3, 3)
    """)
    assert user.model.in_features == 3


def test_a_variable_comes_before_a_class(load: Callable[..., Any]) -> None:
    user = load("""
        class Net(nn.Linear):
            def __init__(self): super().__init__(1, 1)
        model = nn.Linear(2, 2)
    """)
    assert user.model.in_features == 2


def test_the_only_class_that_needs_no_arguments_is_the_model(load: Callable[..., Any]) -> None:
    user = load("""
        class Block(nn.Linear):
            def __init__(self, width): super().__init__(width, width)
        class Net(nn.Sequential):
            def __init__(self): super().__init__(Block(4), Block(4))
    """)
    assert user.name == "Net"


def test_the_model_is_in_evaluation_mode_and_on_the_meta_device(load: Callable[..., Any]) -> None:
    user = load("model = nn.Sequential(nn.Linear(4, 4), nn.Dropout())")
    assert not user.model.training
    assert all(parameter.is_meta for parameter in user.model.parameters())


def test_two_classes_and_no_name_is_an_error_that_lists_them(load: Callable[..., Any]) -> None:
    with pytest.raises(ModelError, match="2 models: Small, Large") as caught:
        load("""
            class Small(nn.Linear):
                def __init__(self): super().__init__(1, 1)
            class Large(nn.Linear):
                def __init__(self): super().__init__(9, 9)
        """)
    assert ":Large" in caught.value.hint


def test_a_name_chooses_a_class_a_builder_an_instance_or_a_function(load: Callable[..., Any]) -> None:
    code = """
        class Net(nn.Linear):
            def __init__(self): super().__init__(1, 1)
        net = nn.Linear(2, 2)
        def make(): return nn.Linear(3, 3)
        def scale(x): return x * 2
    """
    assert load(code, "Net").model.in_features == 1
    assert load(code, "net").model.in_features == 2
    assert load(code, "make").model.in_features == 3
    assert load(code, "scale").is_function


def test_a_name_that_is_not_there_is_answered_with_those_that_are(load: Callable[..., Any]) -> None:
    with pytest.raises(ModelError, match=r"there is no Nope\.") as caught:
        load(
            """
            class Net(nn.Linear):
                def __init__(self): super().__init__(1, 1)
            net = nn.Linear(2, 2)
            def build_model(): return net
            def example_inputs(batch): return torch.zeros(batch, 2)
        """,
            "Nope",
        )
    assert caught.value.hint == "It defines build_model, Net, net."


def test_a_class_that_needs_arguments_says_which(load: Callable[..., Any]) -> None:
    with pytest.raises(ModelError, match=r"needs arguments \(width, depth\)") as caught:
        load("""
            class Net(nn.Linear):
                def __init__(self, width, depth): super().__init__(width, depth)
        """)
    assert "build_model" in caught.value.hint


def test_a_file_without_a_model_says_what_to_define(load: Callable[..., Any]) -> None:
    with pytest.raises(ModelError, match="holds no model"):
        load("x = 1")


def test_a_file_that_raises_shows_its_own_line(load: Callable[..., Any]) -> None:
    with pytest.raises(
        ModelError, match=r"user_model.py:\d+: weights = open\(.no-such-file.\).*FileNotFoundError"
    ):
        load("weights = open('no-such-file')", weights="real")


def test_a_missing_import_is_named(load: Callable[..., Any]) -> None:
    with pytest.raises(ModelError, match="no_such_package") as caught:
        load("import no_such_package", weights="real")
    assert "no_such_package" in caught.value.hint


def test_a_syntax_error_names_the_line(load: Callable[..., Any]) -> None:
    with pytest.raises(ModelError, match="not valid Python: line 4"):
        load("def broken(:", weights="real")


def test_modules_beside_the_file_can_be_imported(load: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "beside_it.py").write_text("WIDTH = 7")
    user = load("""
        from beside_it import WIDTH
        model = nn.Linear(WIDTH, 1)
    """)
    assert user.model.in_features == 7


def test_an_edited_module_beside_the_file_is_read_again(load: Callable[..., Any], tmp_path: Path) -> None:
    code = """
        from edited_beside_it import WIDTH
        model = nn.Linear(WIDTH, 1)
    """
    (tmp_path / "edited_beside_it.py").write_text("WIDTH = 7")
    assert load(code).model.in_features == 7
    (tmp_path / "edited_beside_it.py").write_text("WIDTH = 1234")
    assert load(code).model.in_features == 1234


def test_what_the_file_prints_stays_off_standard_output(
    load: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    load("print('loading'); model = nn.Linear(1, 1)")
    assert capsys.readouterr().out == ""


# Inputs


def test_example_inputs_are_called_with_the_batch(load: Callable[..., Any]) -> None:
    user = load("""
        model = nn.Linear(4, 4)
        def example_inputs(batch): return torch.randn(batch, 4)
    """)
    inputs = resolve_inputs(user, [], 5)
    assert inputs.arguments[0].shape == (5, 4)
    assert (inputs.origin, inputs.batch, inputs.batch_axes) == ("file", 5, {0: (0,)})


def test_the_batch_is_found_on_any_axis(load: Callable[..., Any]) -> None:
    user = load("""
        model = nn.LSTM(4, 4)
        def example_inputs(batch=3): return torch.randn(9, batch, 4)
    """)
    assert resolve_inputs(user, [], 6).batch_axes == {0: (1,)}


def test_a_variable_is_rebatched_by_repeating_rows_of_the_inputs_that_share_the_dimension(
    load: Callable[..., Any],
) -> None:
    user = load(
        """
        def add(x, table): return x + table.sum()
        example_inputs = (torch.tensor([[1.0], [2.0]]), torch.ones(5, 5))
    """,
        "add",
        weights="real",
    )
    inputs = resolve_inputs(user, [], 5)
    assert inputs.arguments[0].flatten().tolist() == [1, 2, 1, 2, 1]
    assert inputs.arguments[1].shape == (5, 5)
    assert inputs.batch_axes == {0: (0,)}


def test_a_dict_of_inputs_becomes_keywords(load: Callable[..., Any]) -> None:
    user = load("""
        class Net(nn.Module):
            def forward(self, *, left, right): return left + right
        example_inputs = {"left": torch.ones(2, 3), "right": torch.ones(2, 3)}
    """)
    inputs = resolve_inputs(user, [], None)
    assert set(inputs.keywords) == {"left", "right"}


def test_input_options_come_before_the_file(load: Callable[..., Any]) -> None:
    user = load("""
        model = nn.Linear(4, 4)
        example_inputs = torch.randn(1, 4)
    """)
    inputs = resolve_inputs(user, [parse_input("input=B,7,4:float16")], 2)
    assert inputs.origin == "given"
    assert inputs.arguments[0].shape == (2, 7, 4)
    assert str(inputs.arguments[0].dtype) == "torch.float16"


@pytest.mark.parametrize(
    ("layers", "shape"),
    [
        ("nn.Linear(12, 3)", (4, 12)),
        ("nn.Conv2d(3, 8, 3)", (4, 3, 224, 224)),
        ("nn.Conv2d(1, 8, 5), nn.Flatten(), nn.Linear(8 * 24 * 24, 10)", (4, 1, 28, 28)),
        ("nn.Embedding(50, 6)", (4, 128)),
    ],
)
def test_inputs_are_inferred_from_the_first_layers(
    load: Callable[..., Any], layers: str, shape: tuple[int, ...]
) -> None:
    user = load(f"model = nn.Sequential({layers})")
    inputs = resolve_inputs(user, [], 4)
    assert inputs.origin == "inferred"
    assert tuple(inputs.arguments[0].shape) == shape


def test_inputs_that_cannot_be_inferred_show_the_option_to_write(load: Callable[..., Any]) -> None:
    with pytest.raises(InputError) as caught:
        resolve_inputs(
            load("""
            class Net(nn.Module):
                def forward(self, image, mask): return image * mask
        """),
            [],
            None,
        )
    assert "--input image=B,...:float32 --input mask=B,...:float32" in caught.value.hint


def test_an_input_that_the_model_does_not_take_is_refused(load: Callable[..., Any]) -> None:
    user = load("model = nn.Linear(4, 4)")
    with pytest.raises(InputError, match="takes no input x"):
        resolve_inputs(user, [parse_input("x=B,4")], None)


NODES_AND_EDGES = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)
        def forward(self, x, edge_index):
            return torch.zeros_like(x).index_add(0, edge_index[1], self.linear(x)[edge_index[0]])
    def build_model(): return Net()
    example_inputs = (torch.randn(50, 4), torch.randint(0, 50, (2, 120)))
"""


def test_nodes_of_a_graph_are_no_batch(load: Callable[..., Any]) -> None:
    inputs = resolve_inputs(load(NODES_AND_EDGES), (), None)
    assert (inputs.batch, dict(inputs.batch_axes)) == (1, {})


def test_nodes_of_a_graph_are_a_batch_where_that_is_asked(load: Callable[..., Any]) -> None:
    inputs = resolve_inputs(load(NODES_AND_EDGES), (), 100)
    assert inputs.batch == 100


def test_an_empty_axis_is_a_size() -> None:
    assert parse_input("past=1,8,0,64").shape == (1, 8, 0, 64)


@pytest.mark.parametrize("dtype", sorted(set(DTYPES) - {"undefined", "string"}))
def test_an_input_has_the_type_that_was_given_or_is_an_error_of_usage(dtype: str) -> None:
    # PyTorch 2.13 has names for types that are packed into bytes, and no tensors of them.
    packed = re.fullmatch(r"u?int[24]|float[46]e\w+", dtype) is not None
    spec = parse_input(f"x=B,8:{dtype}")
    if packed:
        with pytest.raises(UsageError, match=f"no tensors of {dtype}"):
            make_tensor(spec, 2, "real")
        return
    made = make_tensor(spec, 2, "real")
    named = str(made.dtype).removeprefix("torch.").replace("_", "").replace("e8m0fnu", "e8m0")
    assert (named, made.shape) == (dtype, (2, 8))
