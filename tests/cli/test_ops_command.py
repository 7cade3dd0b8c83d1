"""``analyze ops`` prints the rules."""

from click.testing import CliRunner

from analyzer.cli.catalogues import ops as command


def test_ops_lists_every_rule_with_formula_and_basis() -> None:
    from analyzer.costs import rules

    result = CliRunner().invoke(command)
    assert result.exit_code == 0
    assert result.output.startswith(f"{len(rules())} rules.")
    (line,) = [line for line in result.output.splitlines() if line.startswith("  Conv ")]
    assert "exact" in line
    assert "2 * N * Cout" in line


def test_ops_explains_one_operator() -> None:
    result = CliRunner().invoke(command, ["Conv"])
    assert result.exit_code == 0
    assert "ai.onnx::Conv" in result.output
    assert "The kernel comes from the weight" in result.output


def test_ops_lists_one_domain() -> None:
    result = CliRunner().invoke(command, ["--domain", "ai.onnx.ml"])
    assert "ai.onnx.ml::TreeEnsemble" in result.output
    assert "\n  Conv " not in result.output


def test_ops_names_the_nearest_of_an_unknown_operator() -> None:
    from analyzer.errors import UsageError

    result = CliRunner().invoke(command, ["MatMull"])
    assert isinstance(result.exception, UsageError)
    assert "MatMul" in result.exception.hint


def test_help_shows_no_escape_of_the_program_that_lays_it_out() -> None:
    from analyzer.cli import COMMANDS, command_line

    for name in COMMANDS:
        shown = CliRunner().invoke(command_line, [name, "--help"])
        assert shown.exit_code == 0
        assert "\\b" not in shown.output
        assert "\b" not in shown.output
