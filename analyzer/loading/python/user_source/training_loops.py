"""Where a script trains at its module level: up to there it is executed, since an analysis must train nothing.

The file's text is read for it. A training loop is a loop that calls ``backward``, itself or through the file's
own functions and methods, or a call that makes a library's trainer train.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

_BACKWARD = frozenset({"backward", "manual_backward"})
# By the ending of a class's name, its methods that train: Lightning, transformers and others; fastai.
_LIBRARY_TRAINERS = (
    ("Trainer", frozenset({"fit", "train"})),
    ("Learner", frozenset({"fit", "fit_one_cycle", "fine_tune"})),
)
# Words without which a text holds none of all that.
_TRACES = (b"backward", b"Trainer", b"Learner")
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
# What a file may say of its model behind the loop as well.
_OFFERED = frozenset({"example_inputs", "example_targets"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingLoop:
    """A statement of a module level that trains.

    Attributes:
        file: As reports show it.
        line: Where it begins.
        text: That line.
    """

    file: str
    line: int
    text: str

    @property
    def told(self) -> str:
        """What was left out of executing the file."""
        return f"{self.file} was executed up to line {self.line}, where it trains: `{self.text}`."


def before_training(source: bytes, path: str) -> tuple[ast.Module, int] | None:
    """A file without its training loop and what follows it but definitions, and the loop's line.

    Args:
        source: The file's text.
        path: Its name in errors.

    Returns:
        None where nothing in it trains, and where it is not valid Python.
    """
    if not any(word in source for word in _TRACES):
        return None
    try:
        tree = ast.parse(source, path)
        kept, stop, rest = _split(tree.body, _training_names(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # importing it says what is wrong
    if stop is None:
        return None
    later = [item for statement in rest for item in _definition(statement)]
    return ast.fix_missing_locations(ast.Module([*kept, *later], tree.type_ignores)), stop.lineno


def _split(
    body: Sequence[ast.stmt], names: _TrainingNames
) -> tuple[list[ast.stmt], ast.stmt | None, Sequence[ast.stmt]]:
    """The statements before the one that trains, that one, and those after it."""
    names = replace(names, bound=names.bound | _bound(body))
    for index, statement in enumerate(body):
        if not names.trains(statement):
            continue
        kept, rest = list(body[:index]), body[index + 1 :]
        if isinstance(statement, (ast.With, ast.If, ast.Try)):
            inner, stop, _ = _split(statement.body, names)
            if stop is not None:
                if inner:
                    kept.append(_with_body(statement, inner))
                return kept, stop, rest
        return kept, statement, rest
    return list(body), None, []


def _with_body(statement: ast.With | ast.If | ast.Try, body: list[ast.stmt]) -> ast.stmt:
    if isinstance(statement, ast.With):
        cut: ast.stmt = ast.With(statement.items, body)
    elif isinstance(statement, ast.If):
        cut = ast.If(statement.test, body, [])
    else:
        cut = ast.Try(body, statement.handlers, [], statement.finalbody)
    return ast.copy_location(cut, statement)


def _definition(statement: ast.stmt) -> Iterator[ast.stmt]:
    """What defines something behind the loop; nothing where it needs what the loop would have made."""
    offers = isinstance(statement, ast.Assign) and all(
        isinstance(target, ast.Name) and target.id in _OFFERED for target in statement.targets
    )
    if offers or isinstance(statement, _DEFINITIONS):
        missing = ast.ExceptHandler(ast.Name("NameError", ast.Load()), None, [ast.Pass()])
        yield ast.copy_location(ast.Try([statement], [missing], [], []), statement)


@dataclass(frozen=True, slots=True)
class _TrainingNames:
    """What of a file trains, by its name.

    Attributes:
        stepping: Functions, and methods as ``Class.method``, that call ``backward``.
        training: Those of them that do so in a loop.
        bound: By variable, the class that it is an object of.
    """

    stepping: frozenset[str] = frozenset()
    training: frozenset[str] = frozenset()
    bound: dict[str, str] = field(default_factory=dict)

    def trains(self, node: ast.AST) -> bool:
        """Whether a statement runs a training loop when it is executed."""
        if isinstance(node, _DEFINITIONS):
            return False
        if _is_main_guard(node):
            assert isinstance(node, ast.If)
            return any(map(self.trains, node.orelse))
        if isinstance(node, _LOOPS):
            return any(map(self.steps, _calls(node))) or any(map(self.calls_training, _calls(node)))
        return any(map(self.calls_training, _calls(node))) or any(
            self.trains(loop) for loop in ast.walk(node) if isinstance(loop, _LOOPS)
        )

    def steps(self, call: ast.Call) -> bool:
        """Whether a call takes a step, or many."""
        if isinstance(call.func, ast.Attribute) and call.func.attr in _BACKWARD:
            return True
        return self._called(call) in self.stepping

    def calls_training(self, call: ast.Call) -> bool:
        """Whether a call trains by itself."""
        name = self._called(call)
        kind, _, method = name.rpartition(".")
        return name in self.training or any(
            kind.endswith(ending) and method in methods for ending, methods in _LIBRARY_TRAINERS
        )

    def _called(self, call: ast.Call) -> str:
        """``function`` or ``Class.method``; empty for anything else."""
        match call.func:
            case ast.Name(id=name):
                return name
            case ast.Attribute(value=ast.Name(id=owner), attr=method):
                return f"{self.bound.get(owner, '')}.{method}"
            case ast.Attribute(value=ast.Call() as built, attr=method):
                return f"{_class_called(built)}.{method}"
        return ""


def _training_names(tree: ast.Module) -> _TrainingNames:
    """What trains of a file's functions and methods, which may call each other in any order."""
    scopes = dict(_functions(tree))
    found = _TrainingNames()
    for _ in range(len(scopes) + 1):
        stepping, training = set(found.stepping), set(found.training)
        for name, (owner, node) in scopes.items():
            own = {"self": owner} if owner else {}
            names = replace(found, bound=_bound(tree.body) | _bound(node.body) | own)
            if any(map(names.steps, _calls(node))):
                stepping.add(name)
            if any(map(names.trains, node.body)):
                training.add(name)
        if len(stepping) == len(found.stepping) and len(training) == len(found.training):
            break
        found = _TrainingNames(frozenset(stepping | training), frozenset(training))
    return found


_Routine = ast.FunctionDef | ast.AsyncFunctionDef


def _functions(tree: ast.Module) -> Iterator[tuple[str, tuple[str, _Routine]]]:
    """The file's functions and methods by name, each with its class."""
    for statement in tree.body:
        if isinstance(statement, _Routine):
            yield statement.name, ("", statement)
        elif isinstance(statement, ast.ClassDef):
            for item in statement.body:
                if isinstance(item, _Routine):
                    yield f"{statement.name}.{item.name}", (statement.name, item)


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    return (item for item in ast.walk(node) if isinstance(item, ast.Call))


def _bound(body: Sequence[ast.stmt]) -> dict[str, str]:
    """By variable, the class whose call it is assigned: ``trainer = pl.Trainer()``."""
    bound = {}
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        bound[target.id] = _class_called(node.value)
    return bound


def _class_called(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _is_main_guard(node: ast.AST) -> bool:
    """Whether it is ``if __name__ == "__main__":``, whose body an import does not run."""
    return isinstance(node, ast.If) and any(
        isinstance(item, ast.Name) and item.id == "__name__" for item in ast.walk(node.test)
    )
