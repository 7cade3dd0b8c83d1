"""The forms are those that the exporter and hand-written models give (torch 2.13, opset 18)."""

from typing import Any

import pytest
from checks_factory import analysis, operator, tensor

from analyzer.checks import run
from analyzer.record.analysis import Analysis, OperatorResult, Where

LINE = Where(file="m.py", line=8, code="return F.gelu(x)")


def found(code: str, toy: Analysis) -> list[Any]:
    return [finding for finding in run(toy) if finding.code == code]


def gelu_of_the_exporter(prefix: str = "", start: str = "x") -> list[OperatorResult]:
    """x * (0.5 * (1 + erf(x / sqrt 2))), which GeluFusion does not match."""
    a, b, c, d, y = (f"{prefix}{name}" for name in "abcdy")
    return [
        operator("Div", [start, "w_sqrt2"], [a]),
        operator("Erf", [a], [b], source=LINE),
        operator("Add", [b, "w_one"], [c]),
        operator("Mul", ["w_half", c], [d]),
        operator("Mul", [start, d], [y]),
    ]


def gelu_tanh() -> list[OperatorResult]:
    """0.5 x (1 + tanh(c (x + 0.044715 x^3)))."""
    return [
        operator("Mul", ["x", "w_half"], ["h"]),
        operator("Pow", ["x", "w_three"], ["p"]),
        operator("Mul", ["p", "w_small"], ["q"]),
        operator("Add", ["x", "q"], ["s"]),
        operator("Mul", ["s", "w_c"], ["t"]),
        operator("Tanh", ["t"], ["u"], source=LINE),
        operator("Add", ["u", "w_one"], ["v"]),
        operator("Mul", ["h", "v"], ["y"]),
    ]


def test_the_exporters_gelu_below_opset_20_is_five_operators_that_one_could_be() -> None:
    (finding,) = found("A501", analysis(*gelu_of_the_exporter(), opset=18))
    assert finding.severity == "warning"
    assert finding.operator == 1
    assert "5 separate operators" in finding.message
    assert "--opset 20" in finding.fix
    assert abs(finding.seconds - 5e-4) < 1e-12
    # Four inner tensors of 1 x 8 x 16 float32 are written once and read once.
    assert finding.bytes == 4 * 2 * (8 * 16 * 4)


def test_the_tanh_form_is_found_whole() -> None:
    (finding,) = found("A501", analysis(*gelu_tanh(), opset=20))
    assert "8 separate operators" in finding.message
    assert "torch.nn.functional.gelu" in finding.fix


def test_a_bias_and_a_residual_in_front_do_not_belong_to_it() -> None:
    toy = analysis(
        operator("MatMul", ["z", "w"], ["m"]),
        operator("Add", ["m", "w_bias"], ["n"]),
        operator("Add", ["n", "z"], ["x"]),
        *gelu_of_the_exporter(),
    )
    (finding,) = found("A501", toy)
    assert "5 separate operators" in finding.message


def test_a_fused_gelu_is_no_finding() -> None:
    assert found("A501", analysis(*gelu_of_the_exporter(), fused={(0, 1, 2, 3, 4): "Gelu"})) == []
    assert found("A501", analysis(*gelu_of_the_exporter(), fused={(0, 1, 2, 3, 4): "BiasGelu"})) == []


def test_all_layers_that_share_a_source_line_are_one_finding() -> None:
    layers = [
        *gelu_of_the_exporter("p", "x"),
        *gelu_of_the_exporter("q", "py"),
        *gelu_of_the_exporter("r", "qy"),
    ]
    (finding,) = found("A501", analysis(*layers))
    assert "3 GELUs executed as 15 separate operators" in finding.message


@pytest.mark.parametrize(
    "operators",
    [
        # Mish: x * tanh(softplus(x)).
        [
            operator("Softplus", ["x"], ["s"]),
            operator("Tanh", ["s"], ["t"]),
            operator("Mul", ["x", "t"], ["y"]),
        ],
        # A normal distribution's cumulative function: 0.5 * (1 + erf(x / sqrt 2)), no product with x.
        [
            operator("Div", ["x", "w_sqrt2"], ["a"]),
            operator("Erf", ["a"], ["b"]),
            operator("Add", ["b", "w_one"], ["c"]),
            operator("Mul", ["c", "w_half"], ["y"]),
        ],
        # A gate: (1 + tanh(x w + b)) * z.
        [
            operator("MatMul", ["x", "w"], ["a"]),
            operator("Add", ["a", "w_b"], ["b"]),
            operator("Tanh", ["b"], ["t"]),
            operator("Add", ["t", "w_one"], ["c"]),
            operator("Mul", ["c", "z"], ["y"]),
        ],
    ],
)
def test_what_only_resembles_a_gelu_is_none(operators: list[OperatorResult]) -> None:
    assert found("A501", analysis(*operators)) == []


def rms_norm(square: str = "Pow", quotient: str = "Reciprocal") -> list[OperatorResult]:
    root = [
        operator(square, ["x", "w_two"] if square == "Pow" else ["x", "x"], ["s"]),
        operator("ReduceMean", ["s", "w_axes"], [tensor("m", (1, 8, 1))]),
        operator("Add", [tensor("m", (1, 8, 1)), "w_eps"], [tensor("e", (1, 8, 1))]),
        operator("Sqrt", [tensor("e", (1, 8, 1))], [tensor("r", (1, 8, 1))]),
    ]
    if quotient == "Reciprocal":
        root += [
            operator("Reciprocal", [tensor("r", (1, 8, 1))], [tensor("i", (1, 8, 1))]),
            operator("Mul", ["x", tensor("i", (1, 8, 1))], ["n"]),
        ]
    else:
        root.append(operator("Div", ["x", tensor("r", (1, 8, 1))], ["n"]))
    return [*root, operator("Mul", ["n", "w_weight"], ["y"])]


@pytest.mark.parametrize(
    ("square", "quotient", "kernels"), [("Pow", "Reciprocal", 7), ("Mul", "Reciprocal", 7), ("Pow", "Div", 6)]
)
def test_an_rms_norm_spelt_out_is_found_in_each_form(square: str, quotient: str, kernels: int) -> None:
    (finding,) = found("A502", analysis(*rms_norm(square, quotient), opset=20))
    assert f"one RMSNorm executed as {kernels} separate operators" in finding.message
    assert "--opset 23" in finding.fix


def test_at_opset_23_the_advice_is_the_module() -> None:
    (finding,) = found("A502", analysis(*rms_norm(), opset=23))
    assert "--opset" not in finding.fix
    assert "torch.nn.RMSNorm" in finding.fix


def test_a_layer_norm_spelt_out_is_called_one() -> None:
    toy = analysis(
        operator("ReduceMean", ["z", "w_axes"], [tensor("mu", (1, 8, 1))]),
        operator("Sub", ["z", tensor("mu", (1, 8, 1))], ["x"]),
        *rms_norm(quotient="Div"),
    )
    (finding,) = found("A502", toy)
    assert "LayerNorm" in finding.message


@pytest.mark.parametrize("name", ["SimplifiedLayerNormalization", "SkipLayerNormalization", "RMSNormalization"])
def test_a_fused_norm_is_no_finding(name: str) -> None:
    assert found("A502", analysis(*rms_norm(), fused={(0, 1, 2, 3, 4, 5, 6): name})) == []


def test_a_variance_alone_is_no_norm() -> None:
    assert (
        found("A502", analysis(operator("Pow", ["x", "w_two"], ["s"]), operator("ReduceMean", ["s"], ["y"])))
        == []
    )
