"""A7xx: what cannot be loaded, and answers that differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from analyzer.checks.registry import Diagnostic, Subject, rule
from analyzer.ort.kernels import registry
from analyzer.text import listed, plural
from analyzer.units import digits


@rule("A701", "opset-too-new", "error")
def opset_too_new(subject: Subject) -> Iterator[Diagnostic]:
    """ONNX Runtime refuses the model's opset.

    What:
        The model is written for an opset that ONNX Runtime does not load. It is counted and predicted
        all the same.

    Why:
        Opsets appear with ONNX; the runtime follows later.

    Fix:
        Export or convert with `--opset`: 20 or 21 for convolution networks, 23 for transformers.

    Example:
        `onnx.helper.make_model` writes the newest opset that the installed onnx knows.
    """
    refused = registry(subject.analysis.onnxruntime).refuses_opset(subject.analysis.model.opset)
    if refused:
        yield Diagnostic(message=refused, fix="export or convert to an older opset (--opset 21)")


@rule("A702", "answers-differ", "error")
def answers_differ(subject: Subject) -> Iterator[Diagnostic]:
    """Two ways to run the model give different answers.

    What:
        The same input was run through PyTorch and ONNX Runtime, or on CPU and GPU, and an output differs by
        more than its type's rounding explains. Only a check that runs the model (`--run`) can find it.

    Why:
        A fast wrong answer is no answer.

    Fix:
        Look for control flow that the export fixed, for random or uninitialised values, or for a reduced
        precision (TF32, float16) that the model does not bear; `--precision fp32` turns TF32 off. On the CPU
        the run is made again with one thread: where that agrees, threads of a kernel get into each other's way.
        ONNX Runtime's ScatterND with a reduction (`index_add`, `index_put`) loses updates of a row that is hit
        twice; `scatter_add` and `scatter_reduce` become ScatterElements, which one thread executes.

    Example:
        A model in training mode: dropout makes every run differ.
    """
    rows = subject.analysis.environment.measurement.get("agreement", ())
    for row in rows if isinstance(rows, list | tuple) else ():
        # The record has what a measurement says as free rows: what is not one of ours is passed over.
        if not isinstance(row, Mapping) or row.get("agrees") is not False:
            continue
        largest, relative = row.get("max_abs_error"), row.get("max_rel_error")
        errors = [
            f"{digits(value)} {word}"
            for value, word in ((largest, "absolute"), (relative, "relative"))
            if isinstance(value, int | float)
        ]
        yield Diagnostic(
            message=f"output {row.get('output', '')!r} differs between {row.get('between', 'two runs')}"
            + (f": {listed(errors)} error at most" if errors else "")
            + _on_one_thread(row),
            fix=_cause(row),
        )


@rule("A703", "model-not-analysed", "error")
def model_not_analysed(_subject: Subject) -> Iterator[Diagnostic]:
    """One of several models could not be analysed.

    What:
        The model could not be read, built or exported, took too long, or its process ended; or its baseline is
        another's. Only a check of several models, or of a fleet, can find it: of a single model it is an error
        of the command itself, with status 2.

    Why:
        What cannot be analysed cannot be judged: that it was passed over would look like that it passed.

    Fix:
        Do what the message's hint says. Of a fleet, then run `analyze fleet` with the same arguments and
        `--retry-failed`.

    Example:
        A package that the model's file imports is not installed on the runner.
    """
    # An analysis is of a model that was analysed: the command itself says which was not.
    yield from ()


@rule("A706", "ignore-comment", "warning")
def ignore_comment(_subject: Subject) -> Iterator[Diagnostic]:
    """A comment that sets findings aside has no reason, an unknown code, or nothing to set aside.

    What:
        `# analyze: ignore[A101] reason` behind the line of an operator sets the findings of that code on that
        line aside; `[A101, A2]` names several, or the beginning of codes. The comment is wrong itself where no
        finding on its line has the code; a class or function that the model does not execute is passed over.

    Why:
        A comment that outlives its cause hides the next fault on its line, and without a reason nobody dares to
        remove it.

    Fix:
        Give the reason behind the bracket, or remove the comment.

    Example:
        self.pool = nn.MaxPool2d(3, stride=2)  # analyze: ignore[A101] the opset is the server's
    """
    # What a comment sets aside is known when all rules have been asked.
    yield from ()


@rule("A704", "not-loadable", "error")
def not_loadable(subject: Subject) -> Iterator[Diagnostic]:
    """ONNX Runtime refuses to load the model.

    What:
        Creating a session fails: an operator has an attribute, an input or a type that its schema lacks at the
        model's opset, shapes that never fit, or a name twice; or the file has a newer IR version than the
        release reads. It is counted and predicted all the same, as far as that is possible.

    Why:
        What no session loads runs nowhere.

    Fix:
        Save the model again from where it comes from, at an opset that has its operators in this form; an IR
        version is lowered with `model.ir_version = 10`.

    Example:
        `axes` as an attribute of Squeeze, which has been an input since opset 13.
    """
    model, known = subject.analysis.model, registry(subject.analysis.onnxruntime)
    refused = known.refuses_ir(model.ir_version)
    if refused:
        yield Diagnostic(message=refused, fix="set an older IR version (model.ir_version = 10) and save it")
    for problem in model.problems:
        yield Diagnostic(
            message=f"ONNX Runtime does not load the model: {problem}",
            fix="export the model again, or mend the operator",
        )
    for operator in subject.analysis.operators:
        lacks = known.lacks_operator((operator.domain, operator.op_type), model.opset)
        if lacks:
            yield Diagnostic(message=lacks, fix="export at an opset that has it (--opset)", operator=operator)


@rule("A705", "empty-input", "warning")
def empty_input(subject: Subject) -> Iterator[Diagnostic]:
    """The file declares an input without any element.

    What:
        A size of an input is 0. The model is counted at other sizes, and nothing is decided.

    Why:
        Some exporters write 0 for a size that is open. A session computes nothing then, on any device.

    Fix:
        Give the size with `--input`, and name the axis in the file: ONNX Runtime takes other sizes only there.

    Example:
        `dim_value: 0` for the height and width of an image.
    """
    for sentence in subject.analysis.model.empty_inputs:
        message, _, fix = sentence.partition(". ")
        yield Diagnostic(message=message, fix=f"{fix[:1].lower()}{fix[1:].rstrip('.')}")


def _on_one_thread(row: Mapping[str, Any]) -> str:
    """Return the result with one thread where the CPU's several were off."""
    agrees, threads = row.get("one_thread_agrees"), row.get("threads")
    if agrees is None:
        return ""
    if not agrees:
        return "; with one thread in place of several it differs too"
    scatters = row.get("reducing_scatters")
    who = (
        f"threads of {plural(scatters, 'ScatterND', 'ScatterND')} lose updates where an index comes twice"
        if isinstance(scatters, int) and scatters
        else "threads of a kernel get into each other's way"
    )
    return f"; with one thread in place of {threads} it agrees: {who}"


def _cause(row: Mapping[str, Any]) -> str:
    """Return the advice for a disagreement."""
    if row.get("one_thread_agrees"):
        rewritten = "write scatter_add or scatter_reduce in place of index_add and index_put (ScatterND), or "
        return f"{rewritten if row.get('reducing_scatters') else ''}run it with one thread (--threads 1)"
    if row.get("session") == "cpu":  # in float32 already, where the model's own type is
        return "look for fixed control flow or random values"
    return "look for fixed control flow, random values or reduced precision; try --precision fp32"
