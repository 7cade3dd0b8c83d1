"""MODEL on the command line -> which file or module, and which name in it."""

from __future__ import annotations

import ast
import difflib
import io
import json
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from analyzer.errors import ModelError, UsageError
from analyzer.toml_file import read_within

ReferenceKind = Literal["python", "onnx", "pt2", "record", "configuration"]

_SUFFIXES: dict[str, ReferenceKind] = {".py": "python", ".onnx": "onnx", ".pt2": "pt2", ".json": "record"}
# A name, and behind it what it is called with. As few as fit before it: an argument may hold ".py:" too.
_NAME = r":(?P<name>[A-Za-z_][\w.]*)(?:\((?P<arguments>.*)\))?"
_NAMED_FILE = re.compile(rf"(?P<file>.+?\.py){_NAME}", re.DOTALL)
_NAMED_MODULE = re.compile(rf"(?P<module>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*){_NAME}", re.DOTALL)
_KINDS = "A model is model.py, model.py:Name, package.module:Name, model.onnx, model.pt2 or config.json."
_UNKNOWN_KIND = ("is of no kind that can be read", _KINDS)
_CODE = "Name the code that builds the model: model.py, model.py:Net or 'model.py:Net(hidden=512)'."
# Of a zip file the list of its entries stands at the end: as much of it as names what it holds.
_ZIP_END_BYTES = 2**20
# Python's compiler takes memory by the length of what it reads, which may come with a stranger's settings.
_LONGEST_LITERAL = 10_000
_DOTS = "`...` stands for a value that you must fill in."
_VALUES = (
    "Numbers, texts in quotes, lists, True, None, names of the file's own variables and calls of its classes "
    "and functions can stand there."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """An argument of the class or function that builds a model.

    Attributes:
        name: Of its parameter; None for one by its position.
        literal: Its value, as Python writes it; empty where only a variable of the file can be meant.
        word: A bare name, as it was written, which a variable of the file may have; empty for anything else.
        calls: Whether ``literal`` holds calls of what the file defines or imports.
    """

    name: str | None
    literal: str
    word: str = ""
    calls: bool = False

    @property
    def value(self) -> Any:
        """The value itself, where no variable and no call is meant."""
        return ast.literal_eval(self.literal) if self.literal else self.word

    def __str__(self) -> str:
        written = self.literal or self.word
        return written if self.name is None else f"{self.name}={written}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The parsed MODEL.

    Attributes:
        text: As the user wrote it.
        kind: ``python``, ``onnx``, ``pt2``, ``record`` (a saved report) or ``configuration`` (a ``config.json``
            of Hugging Face; ``path`` is that file).
        path: The file; None for a module given by its dotted name.
        module: Dotted module name; None for a file.
        name: The name after the colon, None where there is none.
        arguments: What the named class or function is called with to build the model.
        script_arguments: What the file sees as ``sys.argv[1:]``.
    """

    text: str
    kind: ReferenceKind
    path: Path | None = None
    module: str | None = None
    name: str | None = None
    arguments: tuple[Argument, ...] = ()
    script_arguments: tuple[str, ...] = ()

    @property
    def called(self) -> str | None:
        """The part behind the colon, with its arguments: ``Net(hidden=512)``."""
        if not self.arguments:
            return self.name
        return f"{self.name or ''}({', '.join(map(str, self.arguments))})"

    @property
    def stem(self) -> str:
        """A short name for reports: ``resnet50`` or ``resnet50-Small``."""
        if self.kind == "configuration" and self.path is not None:
            return self.path.resolve().parent.name or "model"
        base = self.path.stem if self.path else (self.module or "model").rsplit(".", 1)[-1]
        return f"{base}-{self.name}" if self.name else base


def parse_reference(text: str) -> Reference:
    """Read MODEL.

    Raises:
        ModelError: There is no such file, or it is of no kind that can be read.
    """
    if not text:
        raise ModelError("MODEL is empty.", hint="Name a file: model.py, model.onnx.")
    # Before the suffix: "model.py:Net.inner" ends in no suffix that is known. A Windows drive ("C:\\x.py") has
    # its colon before the suffix and so is no name.
    if match := _NAMED_FILE.fullmatch(text):
        arguments = _arguments(text, match["arguments"])
        path = _existing(match["file"])
        return Reference(text=text, kind="python", path=path, name=match["name"], arguments=arguments)
    path = Path(text)
    if (path.name == CONFIG_NAME and not is_record(text)) or (path.is_dir() and (path / CONFIG_NAME).is_file()):
        file = path / CONFIG_NAME if path.is_dir() else _existing(text)
        return Reference(text=text, kind="configuration", path=file)
    if path.suffix.lower() in _SUFFIXES:
        return Reference(text=text, kind=_SUFFIXES[path.suffix.lower()], path=_existing(text))
    if match := _NAMED_MODULE.fullmatch(text):
        arguments = _arguments(text, match["arguments"])
        return Reference(
            text=text, kind="python", module=match["module"], name=match["name"], arguments=arguments
        )
    if path.is_dir():
        raise _folder(text)
    if path.exists():
        what, hint = _unread_kind(path) if path.is_file() else _UNKNOWN_KIND
        raise ModelError(f"{text} {what}.", hint=hint)
    _existing(text)
    raise AssertionError("unreachable: a missing file raises")


def _unread_kind(path: Path) -> tuple[str, str]:
    """Return what a file is that is not read, and a hint; by a few of its bytes, none of which is executed."""
    try:
        with path.open("rb") as file:
            start = file.read(512)
            size = file.seek(0, io.SEEK_END)
            file.seek(max(0, size - _ZIP_END_BYTES))
            end = file.read()
    except OSError:
        return _UNKNOWN_KIND
    zipped = start.startswith(b"PK") and b"PK\x05\x06" in end
    if zipped and (b"archive_format" in end or b"serialized_exported_program.json" in end):
        return "is a program of torch.export.save under another name", f"Rename it to {path.stem}.pt2."
    if zipped and b"constants.pkl" in end:
        return (
            "is a TorchScript program (torch.jit.save), which is not read",
            "Name the code of the model, or save it with torch.export.save (.pt2), or write ONNX: "
            "torch.onnx.export(torch.jit.load(FILE), inputs, 'model.onnx', dynamo=False).",
        )
    # A bare pickle, of protocol 2 to 5: torch.save wrote no zip files before 1.6.
    if (zipped and b"data.pkl" in end) or re.match(rb"\x80[\x02-\x05].", start, re.DOTALL):
        return (
            "holds weights or a pickled model; it is not unpickled, as that runs what the file says",
            f"{_CODE} The weights are not needed.",
        )
    if start.startswith(b"version https://git-lfs"):
        return "is a pointer of Git LFS, not the file itself", "Fetch it: git lfs pull."
    # Eight bytes of length, then a header of JSON.
    if start[8:9] == b"{" and int.from_bytes(start[:8], "little") <= size - 8:
        return "holds weights alone (safetensors)", f"{_CODE} The weights are not needed."
    return _UNKNOWN_KIND


def names_python(text: str) -> bool:
    """Return whether MODEL is model.py, model.py:Name or package.module:Name, be it there or not."""
    return text.endswith(".py") or bool(_NAMED_FILE.fullmatch(text) or _NAMED_MODULE.fullmatch(text))


def split_path(text: str) -> tuple[str, str]:
    """Return the path that MODEL begins with, be it there or not, and the rest, which names what is in it.

    Of a module's dotted name the path is empty.
    """
    if match := _NAMED_FILE.fullmatch(text):
        return match["file"], text[match.end("file") :]
    is_module = Path(text).suffix.lower() not in _SUFFIXES and _NAMED_MODULE.fullmatch(text)
    return ("", text) if is_module else (text, "")


def parse_argument(text: str) -> Argument:
    """Read one ``--arg NAME=VALUE``: a literal of Python or calls, else a variable of the file or a text.

    Raises:
        UsageError: It has no name, or its value is almost a literal.
    """
    name, equals, given = text.partition("=")
    name, value = name.strip(), given.strip()
    if not equals or not name.isidentifier():
        raise UsageError(f"--arg {text}: expected NAME=VALUE.", hint="For example --arg hidden=512.")
    # As a text it would count as true.
    meant = {"true": "True", "false": "False", "none": "None", "null": "None"}.get(value.lower(), value)
    if value != meant:
        raise UsageError(
            f"--arg {text}: Python writes {meant}.",
            hint=f"--arg {name}={meant}; for the text: --arg {name}='\"{value}\"'.",
        )
    if _holds_dots(value):
        raise UsageError(f"--arg {text}: {_DOTS}", hint=f"For example --arg {name}=512. {_VALUES}")
    try:
        return _argument(name, value)
    except ValueError as error:
        if _is_call(value):
            raise UsageError(
                f"--arg {text}: this call cannot be evaluated: {error}.",
                hint=f"{_VALUES} A text stands in quotes: --arg {name}='\"{value}\"'.",
            ) from error
        # A text: every character of it may count.
        return Argument(name=name, literal=repr(given), word=given if given.isidentifier() else "")


def with_arguments(
    reference: Reference, arguments: Iterable[Argument], script_arguments: Iterable[str] = ()
) -> Reference:
    """Add what ``--arg`` gives to what stands in parentheses, and the arguments of the script.

    Raises:
        UsageError: An argument is given twice, or there is no code that takes one.
    """
    arguments, script_arguments = tuple(arguments), tuple(script_arguments)
    if not (arguments or script_arguments):
        return reference
    if reference.kind != "python":
        given = f"--arg {arguments[0]}" if arguments else f"-- {script_arguments[0]}"
        raise UsageError(
            f"{given}: {reference.text} is no Python code that builds a model.",
            hint="Arguments go to a class or a function of a .py file or of a module.",
        )
    merged = (*reference.arguments, *arguments)
    _require_once(reference.text, merged)
    return replace(reference, arguments=merged, script_arguments=script_arguments)


def _arguments(text: str, inside: str | None) -> tuple[Argument, ...]:
    """Return the arguments in the parentheses of MODEL."""
    if not inside or not inside.strip():
        return ()
    hint = f'{_VALUES} For example "model.py:Net(hidden=512)".'
    if len(inside) > _LONGEST_LITERAL:
        raise ModelError(f"{text[:80]}...: the arguments are too long.", hint=hint)
    try:
        # A line of its own: what only ends in a comment still ends.
        call = ast.parse(f"f({inside}\n)", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ModelError(f"{text}: ({inside}) are no arguments as Python writes them.", hint=hint) from error
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):  # "a)(b"
        raise ModelError(f"{text}: ({inside}) are no arguments as Python writes them.", hint=hint)
    result = []
    for name, node in [(None, item) for item in call.args] + [(item.arg, item.value) for item in call.keywords]:
        written = ast.unparse(node)
        if isinstance(node, ast.Starred) or (name is None and node not in call.args):
            raise ModelError(f"{text}: an argument with a star cannot stand here.", hint=hint)
        if _holds_dots(written):
            raise ModelError(f"{text}: {_DOTS}", hint=hint)
        if isinstance(node, ast.Name):
            result.append(Argument(name=name, literal="", word=node.id))
            continue
        try:
            result.append(_argument(name, written))
        except ValueError as error:
            raise ModelError(f"{text}: {written} is no literal.", hint=hint) from error
    _require_once(text, result)
    return tuple(result)


def _holds_dots(text: str) -> bool:
    """Return whether ``...``, which our own hints write for a value, stands somewhere in it."""
    try:
        return any(isinstance(node, ast.Constant) and node.value is ... for node in ast.walk(_parsed(text)))
    except ValueError:
        return False


def _is_call(text: str) -> bool:
    try:
        return isinstance(_parsed(text), ast.Call)
    except ValueError:
        return False


def _parsed(text: str) -> ast.expr:
    """Return an expression of Python."""
    if len(text) > _LONGEST_LITERAL:
        raise ValueError("too long")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError("no literal and no call") from error


def _argument(name: str | None, text: str) -> Argument:
    """Return an argument whose value is a literal, or made of literals and calls."""
    tree = _parsed(text)
    try:
        try:
            ast.literal_eval(tree)
            calls = False
        except ValueError:
            _require_calls(tree)
            calls = True
        return Argument(name=name, literal=ast.unparse(tree), calls=calls)
    except (TypeError, RecursionError, MemoryError) as error:  # TypeError: {[]: 1}
        raise ValueError("no literal and no call") from error


# Of values; a call and what it calls are looked at one by one.
_PLAIN = (
    *(ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.keyword, ast.Load),
    *(ast.UnaryOp, ast.UAdd, ast.USub),
)


def _require_calls(tree: ast.expr) -> None:
    """Raise ValueError for anything but literals and calls of names, which may have dots."""
    functions: set[ast.AST] = set()
    for node in ast.walk(tree):  # a call comes before what it calls
        if isinstance(node, ast.Call):
            functions.add(node.func)
        elif node in functions and isinstance(node, ast.Attribute) and not node.attr.startswith("_"):
            functions.add(node.value)
        elif node in functions and not (isinstance(node, ast.Name) and not node.id.startswith("__")):
            raise ValueError("a call of no plain name")
        elif node not in functions and not isinstance(node, _PLAIN):
            raise ValueError("no literal and no call")
        if isinstance(node, ast.keyword) and node.arg is None:
            raise ValueError("two stars")


def _require_once(text: str, arguments: Iterable[Argument]) -> None:
    names = [item.name for item in arguments if item.name is not None]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"{text}: the argument {twice} is given twice.")


def _existing(text: str) -> Path:
    path = Path(text)
    if path.is_file():
        return path
    if path.is_dir():
        raise _folder(text)
    raise ModelError(f"No such file: {text}.", hint=_nearest(path))


def _folder(text: str) -> ModelError:
    genai = (Path(text) / "genai_config.json").is_file()
    return ModelError(
        f"{text} is a folder, not a model.",
        hint=f"Of a model that generates: analyze generate {text}."
        if genai
        else f"Name a file in it: model.py, model.onnx, {CONFIG_NAME}.",
    )


def _nearest(path: Path) -> str:
    folder = path.parent if path.parent.is_dir() else Path()
    names = [item.name for item in sorted(folder.iterdir()) if item.suffix.lower() in _SUFFIXES]
    close = difflib.get_close_matches(path.name, names, n=1)
    if close:
        return f"Did you mean {folder / close[0]}?"
    return _KINDS


CONFIG_NAME, GENAI_NAME = "config.json", "genai_config.json"
# The longest that were published list a few thousand values.
LARGEST_BYTES = 10 * 2**20
PIP_LINE = "pip install 'onnx-analyzer[transformers]'"

_WHAT_IT_IS = (
    f"A model as Hugging Face keeps it is a folder with a {CONFIG_NAME}: give the folder or that file."
)
# How classes of transformers are called that generate token by token (models/auto/modeling_auto.py).
_GENERATING = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "ForSpeechSeq2Seq")


def read_config(path: str | os.PathLike[str]) -> Mapping[str, Any]:
    """Return a model's configuration: of a ``config.json``, or of the one in a folder.

    Raises:
        UsageError: There is none, or it holds no JSON object.
    """
    file = Path(path)
    try:
        if file.is_dir():
            file /= CONFIG_NAME
            if not file.exists():
                raise UsageError(f"{path} is a folder without a {CONFIG_NAME}.", hint=_WHAT_IT_IS)
        content = read_within(file, LARGEST_BYTES)
        values = json.loads(content.decode("utf-8-sig"))
    except FileNotFoundError as error:
        raise UsageError(f"No such file or folder: {path}.", hint=_WHAT_IT_IS) from error
    except json.JSONDecodeError as error:
        raise UsageError(
            f"{file} is no valid JSON: {error}.", hint="The file may be cut: fetch it anew."
        ) from error
    except RecursionError as error:
        raise UsageError(f"{file} is nested too deeply for a configuration.", hint=_WHAT_IT_IS) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is no text in UTF-8.", hint=_WHAT_IT_IS) from error
    except (OSError, ValueError) as error:  # a number of over 4,300 digits, a path with a null character
        raise UsageError(f"{file} cannot be read: {error}.", hint=_WHAT_IT_IS) from error
    if not isinstance(values, dict):
        raise UsageError(f"{file} holds no JSON object.", hint=_WHAT_IT_IS)
    return values


def is_record(text: str) -> bool:
    """Return whether MODEL is a saved report: JSON, and no model's configuration."""
    if os.path.basename(text) != CONFIG_NAME:
        return text.endswith(".json")
    try:  # the report of config.py is called so too
        return "schema_version" in read_config(text)
    except UsageError:
        return False


def is_genai(text: str) -> bool:
    """Return whether MODEL is a folder of ONNX Runtime GenAI, or its ``genai_config.json``."""
    path = Path(text)
    return path.name == GENAI_NAME or (path.is_dir() and (path / GENAI_NAME).is_file())


def class_of(config: Mapping[str, Any]) -> str | None:
    """Return the class of transformers that the weights are of; None where the configuration names none."""
    names = config.get("architectures")
    return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else None


def names_generation(config: Mapping[str, Any]) -> bool:
    """Return whether the class that a configuration names generates token by token."""
    return (class_of(config) or "").endswith(_GENERATING)


@contextmanager
def transformers_silent() -> Iterator[None]:
    """Its warnings are of what does not count here: weights that were not loaded, ids of tokens."""
    logger = logging.getLogger("transformers")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
