"""ONNX Runtime's message on a locale that a machine lacks, in words that help."""

from __future__ import annotations

from analyzer.measurement.session import explained, plain

# As ONNX Runtime 1.31.1 says it on a Debian image without the package `locales`.
SAID = (
    "[ONNXRuntimeError] : 1 : FAIL : Exception during initialization: /onnxruntime_src/onnxruntime/core/"
    "providers/cpu/text/string_normalizer.cc:235 onnxruntime::StringNormalizer::Locale::Locale(const "
    "std::string&)::<lambda()> Failed to construct locale with name:en_US.UTF-8:locale::facet::"
    "_S_create_c_locale name not valid:Please, install necessary language-pack-XX and configure locales\n"
)


def test_a_locale_that_is_not_there_is_named_with_the_commands_that_make_it() -> None:
    error = explained(RuntimeError(SAID))
    assert str(error).startswith("this machine lacks the locale en_US.UTF-8, which StringNormalizer needs")
    assert error.hint is not None
    assert "localedef -i en_US -f UTF-8 en_US.UTF-8" in error.hint
    assert "LOCPATH" in error.hint


def test_no_remains_of_a_c_plus_plus_lambda_are_shown() -> None:
    assert "lambda" not in plain(SAID)
    assert "initialization: Failed to construct" in plain(SAID)
