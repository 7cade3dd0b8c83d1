"""What a class or a function that builds the model is called with: in parentheses, or by ``--arg``."""

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analyzer.errors import ModelError, UsageError
from analyzer.loading.load import load
from analyzer.loading.model_reference import (
    Argument,
    parse_argument,
    parse_reference,
    split_path,
    with_arguments,
)
from analyzer.loading.python.user_model import UserModel, load_user_model

HEAD = """
import torch
from torch import nn
"""
NET = """
    class Block(nn.Linear):
        def __init__(self, width): super().__init__(width, width)
    class Net(nn.Linear):
        def __init__(self, hidden, *, bias=True): super().__init__(4, hidden, bias=bias)
"""


@pytest.fixture
def built(tmp_path: Path) -> Callable[..., UserModel]:
    def build(code: str, behind: str = "", *given: str) -> UserModel:
        path = tmp_path / "net.py"
        path.write_text(HEAD + textwrap.dedent(code))
        reference = parse_reference(f"{path}:{behind}" if behind else str(path))
        return load_user_model(with_arguments(reference, map(parse_argument, given)), weights="meta")

    return build


@pytest.fixture
def named(tmp_path: Path) -> Callable[[str], Any]:
    (tmp_path / "net.py").write_text("")
    return lambda behind: parse_reference(f"{tmp_path / 'net.py'}:{behind}")


def test_arguments_in_parentheses_are_literals_by_position_and_by_name(named: Callable[[str], Any]) -> None:
    reference = named('Net.of(512, sizes=[1, 2], act="a.py:b()", scale=-.5, flag=True)')
    assert (reference.name, reference.stem) == ("Net.of", "net-Net.of")
    assert [(item.name, item.value) for item in reference.arguments] == [
        (None, 512),
        ("sizes", [1, 2]),
        ("act", "a.py:b()"),
        ("scale", -0.5),
        ("flag", True),
    ]
    module = parse_reference("package.module:Net(hidden=512)")
    assert (module.module, module.name, module.stem) == ("package.module", "Net", "module-Net")
    assert module.arguments == (Argument(name="hidden", literal="512"),)


def test_empty_parentheses_are_none(named: Callable[[str], Any]) -> None:
    assert named("Net()").arguments == named("Net").arguments == ()


@pytest.mark.parametrize(
    ("behind", "told"),
    [
        ("Net(width.of)", r"width\.of is no literal"),
        # What our own hints write for a value is none: Python would pass an Ellipsis on.
        ("Net(n=...)", r"`\.\.\.` stands for a value that you must fill in"),
        ("Net(n=[1, ...])", r"`\.\.\.` stands for a value that you must fill in"),
        ("Net(n=2**9)", r"2 \*\* 9 is no literal"),
        ("Net(__import__('os').getpid())", "is no literal"),
        ("Net(*[1])", "a star"),
        ("Net(**{'n': 1})", "a star"),
        ("Net(1, )(2)", "no arguments as Python writes them"),
        ("Net(n=)", "no arguments as Python writes them"),
        ("Net(" + "[" * 900 + ")", "no arguments as Python writes them"),
        ("Net('" + "x" * 20_000 + "')", "too long"),
    ],
)
def test_what_is_no_literal_is_an_error_and_is_not_executed(
    named: Callable[[str], Any], behind: str, told: str
) -> None:
    with pytest.raises(ModelError, match=told) as caught:
        named(behind)
    assert "hidden=512" in (caught.value.hint or "")


def test_an_option_is_a_literal_or_else_text() -> None:
    given = ("hidden=512", "sizes=[1, 2]", "act=relu", "path=a b=c", "off=False", "quoted='1'", "empty=")
    assert [parse_argument(text).value for text in given] == [512, [1, 2], "relu", "a b=c", False, "1", ""]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("hidden", "NAME=VALUE"),
        ("2x=3", "NAME=VALUE"),
        ("a=false", "False"),
        ("a=...", "stands for a value that you must fill in"),
    ],
)
def test_an_option_without_a_name_or_with_almost_a_literal_is_refused(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        parse_argument(text)


def test_an_argument_in_parentheses_and_as_an_option_is_given_twice(named: Callable[[str], Any]) -> None:
    with pytest.raises(UsageError, match="hidden is given twice"):
        with_arguments(named("Net(hidden=1)"), [parse_argument("hidden=2")])
    with pytest.raises(UsageError, match="hidden is given twice"):
        named("Net(hidden=1, hidden=2)")


def test_a_graph_takes_no_arguments(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"")
    with pytest.raises(UsageError, match=r"no Python code that builds a model"):
        with_arguments(parse_reference(str(tmp_path / "model.onnx")), [parse_argument("hidden=2")])


@pytest.mark.parametrize(("behind", "given"), [("Net(7)", ()), ("Net(hidden=7)", ()), ("Net", ("hidden=7",))])
def test_a_class_is_built_with_its_arguments(
    built: Callable[..., UserModel], behind: str, given: tuple[str, ...]
) -> None:
    assert built(NET, behind, *given).model.out_features == 7


WITH_CONFIGURATION = """
    from torch.nn.functional import relu
    class Config:
        hidden = 7
    config = Config()
    class Net(nn.Linear):
        def __init__(self, config, classes=2, act="relu"):
            super().__init__(config.hidden, classes)
            self.act = act
"""


@pytest.mark.parametrize(
    ("behind", "given"),
    [("Net(config)", ()), ("Net(config=config)", ()), ("Net", ("config=config",)), ("", ("config=Config",))],
)
def test_a_bare_name_is_the_variable_of_the_file(
    built: Callable[..., UserModel], behind: str, given: tuple[str, ...]
) -> None:
    assert built(WITH_CONFIGURATION, behind, *given).model.in_features == 7


def test_an_option_is_text_where_the_file_has_but_imported_a_function_of_that_name(
    built: Callable[..., UserModel],
) -> None:
    assert built(WITH_CONFIGURATION, "", "config=config", "act=relu").model.act == "relu"
    assert callable(built(WITH_CONFIGURATION, "Net(config, act=relu)").model.act)


def test_a_bare_name_in_parentheses_that_the_file_has_not_is_an_error(built: Callable[..., UserModel]) -> None:
    with pytest.raises(ModelError, match="settings is no literal, and net has no variable of that name"):
        built(WITH_CONFIGURATION, "Net(settings)")


def test_what_the_file_itself_has_stands_in_the_hint_on_missing_arguments(
    built: Callable[..., UserModel],
) -> None:
    code = WITH_CONFIGURATION.replace("classes=2", "classes")
    with pytest.raises(ModelError, match=r"Net needs arguments \(config, classes\)") as caught:
        built(code)
    hint = caught.value.hint or ""
    assert "net.py:Net --arg config=config --arg classes=...`, or write" in hint
    assert "def build_model(): return Net(config=config, classes=...), with values in place of `...`" in hint


def test_of_several_classes_the_one_that_the_arguments_fit_is_taken(built: Callable[..., UserModel]) -> None:
    assert built(NET, "", "hidden=7", "bias=False").name == "Net"


def test_a_builder_is_called_with_its_arguments(built: Callable[..., UserModel]) -> None:
    code = "def build_model(depth): return nn.Sequential(*(nn.Linear(2, 2) for _ in range(depth)))"
    assert len(list(built(code, "build_model(depth=3)").model.children())) == 3
    assert len(list(built(code, "", "depth=4").model.children())) == 4
    with pytest.raises(ModelError, match=r"build_model needs arguments \(depth\)") as caught:
        built(code)
    assert "--arg depth=..." in (caught.value.hint or "")


def test_a_function_with_arguments_builds_and_without_is_the_model(built: Callable[..., UserModel]) -> None:
    code = "def make(width): return nn.Linear(width, width)"
    assert built(code, "make(width=3)").model.in_features == 3
    assert built(code, "make").is_function


def test_a_missing_argument_names_both_ways_to_give_it_and_the_defaults_of_the_others(
    built: Callable[..., UserModel],
) -> None:
    with pytest.raises(ModelError, match=r"Net needs arguments \(hidden\)") as caught:
        built(NET, "Net(bias=False)")
    hint = caught.value.hint or ""
    assert "--arg hidden=..." in hint
    assert 'net.py:Net(bias=False, hidden=...)"' in hint
    assert "bias=True" in hint
    assert "build_model()" in hint


@pytest.mark.parametrize(
    ("behind", "told", "hint"),
    [
        ("Net(hiden=3)", "Net has no argument hiden", "Did you mean hidden"),
        ("Net(3, 4)", "takes 1 argument by position, not 2", "It takes hidden, bias=True"),
        ("Net(3, hidden=4)", "given hidden twice", "It takes hidden"),
    ],
)
def test_an_argument_that_does_not_fit_says_what_fits(
    built: Callable[..., UserModel], behind: str, told: str, hint: str
) -> None:
    with pytest.raises(ModelError, match=told) as caught:
        built(NET, behind)
    assert hint in (caught.value.hint or "")


def test_a_model_that_is_built_takes_no_arguments(built: Callable[..., UserModel]) -> None:
    with pytest.raises(ModelError, match="model is built already"):
        built("model = nn.Linear(2, 2)", "", "hidden=3")


def test_a_class_of_any_arguments_gets_them(built: Callable[..., UserModel]) -> None:
    code = """
        class Net(nn.Linear):
            def __init__(self, *sizes, **others): super().__init__(*sizes, **others)
    """
    assert built(code, "Net(3, 5, bias=False)").model.out_features == 5


def test_an_export_is_kept_by_its_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANALYZER_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "net.py"
    path.write_text(HEAD + textwrap.dedent(NET))

    def parameters(behind: str, *given: str) -> tuple[int | None, bool]:
        found = load(with_arguments(parse_reference(f"{path}:{behind}"), map(parse_argument, given)))
        return found.parameters, found.cached

    # A matrix of 4 x hidden, and a bias of hidden.
    assert parameters("Net(hidden=3)") == (4 * 3 + 3, False)
    assert parameters("Net(hidden=5)") == (4 * 5 + 5, False)
    assert parameters("Net", "hidden=5") == (4 * 5 + 5, True)
    assert parameters("Net(hidden=3)") == (4 * 3 + 3, True)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("zoo/net.py", ("zoo/net.py", "")),
        ("zoo/net.py:Net(path='x.py:y')", ("zoo/net.py", ":Net(path='x.py:y')")),
        ("package.module:Net(a=[1])", ("", "package.module:Net(a=[1])")),
        ("zoo/model.onnx", ("zoo/model.onnx", "")),
        ("C:\\zoo\\net.py", ("C:\\zoo\\net.py", "")),
    ],
)
def test_a_reference_begins_with_its_path(text: str, parts: tuple[str, str]) -> None:
    assert split_path(text) == parts


CONFIGURED = """
    from dataclasses import dataclass
    @dataclass
    class Heads:
        count: int
        size: int = 2
    @dataclass
    class Config:
        width: int
        heads: Heads
        bias: bool = True
    def doubled(width): return Config(2 * width, Heads(1))
    class Net(nn.Linear):
        def __init__(self, config: Config):
            super().__init__(config.width, config.heads.count * config.heads.size, bias=config.bias)
"""


@pytest.mark.parametrize(
    ("behind", "given", "sizes"),
    [
        ("Net(Config(3, Heads(count=5), bias=False))", (), (3, 10)),
        ("Net", ("config=Config(3, heads=Heads(5, 1))",), (3, 5)),
        ("Net", ("config={'width': 3, 'heads': {'count': 5, 'size': 4}}",), (3, 20)),
        ("Net({'width': 3, 'heads': Heads(5)})", (), (3, 10)),
        ("Net(config=doubled(3))", (), (6, 2)),
    ],
)
def test_arguments_are_calls_of_what_the_file_has_and_dicts_for_its_dataclasses(
    built: Callable[..., UserModel], behind: str, given: tuple[str, ...], sizes: tuple[int, int]
) -> None:
    model = built(CONFIGURED, behind, *given).model
    assert (model.in_features, model.out_features) == sizes


@pytest.mark.parametrize(
    ("behind", "told", "hint"),
    [
        ("Net(Confg(3))", "has no class or function Confg", "A text stands in quotes"),
        ("Net(open('x'))", "has no class or function open", "A text stands in quotes"),
        ("Net(Config(3))", r"Config\(3\) raises.*heads", ""),
        ("Net({'width': 3, 'heads': {'number': 5}})", "Heads has no field number", "It has count, size=2"),
        ("Net({'width': 3})", "Config needs heads", "It has width, heads, bias=True"),
    ],
)
def test_a_call_that_cannot_be_made_says_why(
    built: Callable[..., UserModel], behind: str, told: str, hint: str
) -> None:
    with pytest.raises(ModelError, match=told) as caught:
        built(CONFIGURED, behind)
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    "value", ["f(g._h())", "f(*[1])", "f(**{'a': 1})", "f(1 + 2)", "f(x)", "__import__('os')"]
)
def test_nothing_but_literals_and_calls_is_evaluated(named: Callable[[str], Any], value: str) -> None:
    with pytest.raises(ModelError, match="is no literal"):
        named(f"Net({value})")
    with pytest.raises(UsageError, match="cannot be evaluated") as caught:
        parse_argument(f"a={value}")
    quoted = str(caught.value.hint).rpartition("--arg a='")[2].removesuffix("'.")
    assert parse_argument(f"a={quoted}").value == value  # a text in quotes


@pytest.mark.parametrize(
    ("behind", "given", "sizes"),
    [
        ("Net(Config.usual())", [], (6, 6)),
        ("Net", ["config=Config.usual()"], (6, 6)),
        ("Net", ["config=Config.usual().wider(4)"], (10, 10)),
        ("Net", ["config=shared.Config.usual()"], (6, 6)),
        ("Net", ["config=Lazy(5)"], (5, 5)),
    ],
)
def test_a_configuration_is_made_by_a_method_or_a_name_that_the_module_makes_when_asked(
    built: Callable[..., UserModel], behind: str, given: list[str], sizes: tuple[int, int]
) -> None:
    code = """
        class Config:
            def __init__(self, width): self.width = width
            @classmethod
            def usual(cls): return cls(6)
            def wider(self, more): return Config(self.width + more)
        class shared:
            Config = Config
        def __getattr__(name):
            if name == "Lazy": return Config
            raise AttributeError(name)
        class Net(nn.Module):
            def __init__(self, config):
                super().__init__()
                self.layer = nn.Linear(config.width, config.width)
            def forward(self, x): return self.layer(x)
    """
    layer = built(code, behind, *given).model.layer
    assert (layer.in_features, layer.out_features) == sizes


def test_a_missing_argument_is_built_from_its_annotation_in_the_hint(built: Callable[..., UserModel]) -> None:
    with pytest.raises(ModelError) as caught:
        built(CONFIGURED)
    assert "--arg 'config=Config(width=..., heads=Heads(count=...))'" in (caught.value.hint or "")
    with pytest.raises(ModelError) as caught:
        built(
            CONFIGURED.replace("width: int\n", "width: int = 3\n").replace(
                "heads: Heads", "heads: Heads = None"
            )
        )
    assert "net.py:Net --arg 'config=Config()'`, or" in (caught.value.hint or "")


def test_a_text_arrives_with_its_blanks() -> None:
    letters = "_'ABCDEFGHIJKLMNOPQRSTUVWXYZ "
    assert parse_argument(f"labels={letters}").value == letters
    assert len(parse_argument(f"labels={letters}").value) == 29
    assert parse_argument("pad= ").value == " "
    assert parse_argument("hidden= 5 ").value == 5
