"""The graph of a saved program, vetted: what PyTorch would execute of it is refused or left out.

torch/_export/serde/serialize.py looks operators up by name (any attribute of ``torch``), has sympy evaluate
sizes as Python, imports modules that the form of the inputs names, and writes names of values into Python code
that it compiles. So each text of the graph must be of the form that PyTorch itself writes in that place; a text
in a place that is not listed here is refused.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from typing import Any

from analyzer.loading.torch_private import has_kernel

# Values of JSON: the schema of torch/_export/serde/schema.py, which PyTorch checks, gives them types.
Json = Any

_NAME = re.compile(r"[^\W\d]\w*")
# Keys of a ModuleDict can be other texts than names; PyTorch puts them between quotation marks as they are.
_DOTTED = re.compile(r"[\w .:;,/@$%&|~^+*=<>!?()\[\]-]*")
_DEVICE = re.compile(r"cpu|cuda|meta|mps|xpu")
_INFINITE = re.compile(r"-?Infinity|NaN")  # how numbers are written that JSON lacks
# Prefixes of torch/utils/_sympy/symbol.py. PyTorch counts up to the number of a symbol that data decide.
_SYMBOL = re.compile(r"(?:s|u|zf|zuf|ps|i)\d{1,6}")
_FILE = re.compile(r'File "(?P<file>[^"]*)"')

# Namespaces of operators that compute. Those of c10d reach other machines, others this process.
_OPERATOR = re.compile(
    r"torch\.ops\.(?P<namespace>aten|prims|onnx|onnx_symbolic|quantized_decomposed|torchvision)"
    r"\.(?P<name>\w+)\.(?P<overload>\w+)",
    re.ASCII,
)
# Opens, and makes, the file that an argument names; writes to the terminal.
_EFFECTS = frozenset({"from_file", "_print"})
# What takes graphs or operators of the same kind, and what computes with sizes.
_FUNCTION = re.compile(
    r"torch\.ops\.higher_order\.(?:associative_scan|auto_functionalized|auto_functionalized_v2|cond"
    r"|flex_attention|hints_wrapper|invoke_subgraph|map_impl|out_dtype|scan|strict_mode|tag_activation_checkpoint"
    r"|while_loop|while_loop_stack_output|wrap|wrap_activation_checkpoint|wrap_with_autocast"
    r"|wrap_with_set_grad_enabled)"
    r"|_operator\.(?:abs|add|and_|eq|floordiv|ge|getitem|gt|le|lshift|lt|mod|mul|ne|neg|not_|or_|pos|pow|rshift"
    r"|sub|truediv|xor)"
    r"|math\.(?:ceil|floor|sqrt|trunc)"
    r"|torch\.sym_(?:float|int|ite|max|min|not|sqrt|sum)"
    r"|torch\._functorch\.predispatch\.(?:_add_batch_dim|_remove_batch_dim|_vmap_increment_nesting"
    r"|_vmap_decrement_nesting|lazy_load_decompositions)"
)

# Of sympy and of torch/utils/_sympy/functions.py: what sizes are made of.
_SIZE_FUNCTION = re.compile(
    r"Symbol|Integer|Rational|Float|Add|Mul|Pow|Max|Min|Mod|Abs|floor|ceiling|Piecewise|ExprCondPair"
    r"|Eq|Ne|Lt|Le|Gt|Ge|Equality|Unequality|StrictLessThan|LessThan|StrictGreaterThan|GreaterThan|And|Or|Not"
    r"|FloorDiv|ModularIndexing|Where|PythonMod|CleanDiv|CeilToInt|FloorToInt|CeilDiv|LShift|RShift|PowByNatural"
    r"|FloatPow|FloatTrueDiv|IntTrueDiv|IsNonOverlappingAndDenseIndicator|TruncToFloat|TruncToInt|RoundToInt"
    r"|RoundDecimal|ToFloat|Identity|OpaqueUnaryFn_(?:sqrt|exp|log|log2)|BitwiseFn_bitwise_(?:and|or|xor)"
)
_POWERS = frozenset({"Pow", "PowByNatural", "FloatPow", "LShift"})
_SIZE_NAME = re.compile(r"oo|int_oo|nan|true|false")
_ASSUMPTION = re.compile(
    r"integer|positive|negative|nonnegative|nonpositive|zero|nonzero|real|finite|commutative|precision|dps"
)
_SIZE_SYNTAX = (
    *(ast.Expression, ast.Call, ast.Name, ast.Load, ast.Constant, ast.Tuple, ast.keyword),
    *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
)
_DECIMAL = re.compile(r"-?[0-9.]{1,40}(?:e[-+]?[0-9]{1,3})?")
_LONGEST_SIZE = 100_000  # characters; a size of a model that was seen has hundreds
_LARGEST_POWER = 64
_LARGEST_NUMBER = 2**64


class RefusedError(Exception):
    """A saved program holds what is not read; the text says what, as the end of a sentence."""


def vetted(program: Json) -> Json:
    """A saved program's graph with nothing in it that PyTorch would execute.

    Args:
        program: What ``models/model.json`` says, as JSON gives it.

    Raises:
        RefusedError: A text is of no form that PyTorch writes in its place.
    """
    if not isinstance(program, dict) or not isinstance(program.get("graph_module"), dict):
        raise RefusedError("it has no graph")
    module = program["graph_module"]
    entries = module.get("module_call_graph")
    if not isinstance(entries, list) or not entries:
        raise RefusedError("it does not say how it is called")
    checked: set[str] = set()
    return {
        "graph_module": {
            "graph": _vetted(module.get("graph"), "graph", checked),
            "signature": _vetted(module.get("signature"), "signature", checked),
            # The first entry is the program's own, the others are of its modules: for taking it apart again.
            "module_call_graph": [_vetted(entries[0], "module_call_graph", checked)],
        },
        "opset_version": {},
        "range_constraints": _ranges(program.get("range_constraints")),
        "schema_version": _vetted(program.get("schema_version"), "schema_version", checked),
        "verifiers": _vetted(program.get("verifiers", []), "verifiers", checked),
        "guards_code": [],  # Python, to be compiled: what inputs have to fulfil
    }


def _ranges(ranges: Json) -> Json:
    if not isinstance(ranges, dict):
        raise RefusedError("it has no ranges of sizes")
    for size in ranges:
        _size(size, "")
    return _vetted(ranges, "range_constraints", set())


def _vetted(value: Json, key: str, checked: set[str]) -> Json:
    """A copy of a part of the graph, for which ``key`` says where it stands."""
    if isinstance(value, str):
        check = _TEXTS.get(key)
        if check is None:
            raise RefusedError(f"{_shown(value)} stands where no text belongs ({_shown(key)})")
        if key in ("in_spec", "out_spec"):
            return _form(value, key)
        mark = f"{key} {value}"
        if mark not in checked:
            check(value, key)
            checked.add(mark)
        return value
    if isinstance(value, list):
        return [_vetted(item, key, checked) for item in value]
    if isinstance(value, dict):
        if key in ("name", "as_name", "target", "as_operator", "expr_str"):
            raise RefusedError(f"{key} is no text")
        if key == "metadata":
            return _metadata(value)
        if key in _NAMED:
            for name in value:
                _fits(name, _NAME, key)
            return {name: _vetted(item, "", checked) for name, item in value.items()}
        return {name: _vetted(item, name, checked) for name, item in value.items()}
    if isinstance(value, int) and abs(value) > _LARGEST_NUMBER:
        raise RefusedError(f"a number of {value.bit_length()} bits is too large ({_shown(key)})")
    return value


def _metadata(metadata: dict[str, Json]) -> dict[str, str]:
    """Of what is noted at a node the traces alone: PyTorch looks the rest up in its modules."""
    kept = {}
    for key in ("stack_trace", "nn_module_stack", "torch_fn"):
        text = metadata.get(key)
        if isinstance(text, str):
            kept[key] = text
    # Reports quote the line that a trace names: no other file of this machine is to be quoted.
    files = [match["file"] for match in _FILE.finditer(kept.get("stack_trace", ""))]
    if not all(file.endswith(".py") or file.startswith("<") for file in files):
        del kept["stack_trace"]
    return kept


def _fits(text: Json, pattern: re.Pattern[str], key: str) -> None:
    if not isinstance(text, str) or not pattern.fullmatch(text):
        raise RefusedError(f"{_shown(text)} is not of a form that PyTorch writes there ({_shown(key)})")


def _shown(text: object) -> str:
    # As Python writes it: no line break and no control character gets out.
    written = ascii(text)
    return written if len(written) <= 80 else f"{written[:80]}..."


def _form_of(pattern: re.Pattern[str]) -> Callable[[str, str], None]:
    def check(text: str, key: str) -> None:
        if text:  # nothing is looked up for an empty name
            _fits(text, pattern, key)

    return check


def _any_text(text: str, _: str) -> None:
    """An argument of an operator: it stays a value, and is written into code with its quotes."""


def _no_object(text: str, _: str) -> None:
    raise RefusedError(f"it works on an object of the class {_shown(text)}, which only its own code can make")


def _operator(text: str, _: str) -> None:
    if _FUNCTION.fullmatch(text):
        return
    match = _OPERATOR.fullmatch(text)
    if match is None or match["name"] in _EFFECTS:
        raise RefusedError(f"the operator {_shown(text)} is not among those that can be read")
    overload = "" if match["overload"] == "default" else f".{match['overload']}"
    # Others of that name are functions of TorchScript: aten::save writes a file.
    if not has_kernel(f"{match['namespace']}::{match['name']}{overload}"):
        raise RefusedError(f"the operator {_shown(text)} is not known here")


def _size(text: str, _: str) -> None:
    """A size: numbers, symbols and functions of them, with powers so few that evaluating it ends."""
    if len(text) > _LONGEST_SIZE:
        raise RefusedError(f"a size is written in {len(text)} characters")
    try:
        tree = ast.parse(text, mode="eval")
        depth = _power_depth(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise RefusedError(f"the size {_shown(text)} cannot be read") from None
    texts: set[int] = set()  # constants that may be one; a call comes before what it is given
    if not all(isinstance(node, _SIZE_SYNTAX) and _size_part(node, texts) for node in ast.walk(tree)):
        raise RefusedError(f"the size {_shown(text)} holds what no size is made of")
    if depth > 2:
        raise RefusedError(f"the size {_shown(text)} holds powers of powers of powers")


def _size_part(node: ast.AST, texts: set[int]) -> bool:
    if isinstance(node, ast.Call):
        if not isinstance(node.func, ast.Name):
            return False
        pattern = {"Symbol": _SYMBOL, "Float": _DECIMAL}.get(node.func.id)
        if pattern is not None:
            first = node.args[0] if len(node.args) == 1 else None
            if not isinstance(first, ast.Constant) or not pattern.fullmatch(str(first.value)):
                return False
            texts.add(id(first))
        return bool(_SIZE_FUNCTION.fullmatch(node.func.id))
    if isinstance(node, ast.keyword):
        return bool(_ASSUMPTION.fullmatch(node.arg or "")) and isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Name):
        return any(known.fullmatch(node.id) for known in (_SIZE_FUNCTION, _SIZE_NAME, _SYMBOL))
    if isinstance(node, ast.Constant):
        number = isinstance(node.value, (int, float)) and abs(node.value) <= _LARGEST_NUMBER
        return number or id(node) in texts
    return not isinstance(node, ast.MatMult)


def _power_depth(tree: ast.AST) -> int:
    """How many powers stand in one another."""
    depth = max(map(_power_depth, ast.iter_child_nodes(tree)), default=0)
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, (ast.Pow, ast.LShift)):
        exponents = [tree.right]
    elif isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id in _POWERS:
        exponents = tree.args[1:]
    else:
        return depth
    for exponent in exponents:
        numbers = [node.value for node in ast.walk(exponent) if isinstance(node, ast.Constant)]
        small = all(isinstance(number, (int, float)) and abs(number) <= _LARGEST_POWER for number in numbers)
        symbols = any(isinstance(node, ast.Name) and node.id == "Symbol" for node in ast.walk(exponent))
        if _power_depth(exponent) or not (small or symbols):
            raise ValueError("a large power")
    return depth + 1


def _form(text: str, key: str) -> str:
    """How inputs or outputs are nested (torch/utils/_pytree.py), with no class but Python's own containers.

    A container of another class, which PyTorch would have to know or to import, comes as a tuple.
    """
    try:
        protocol, tree = json.loads(text)
        form = _container(tree)
        if key == "in_spec" and len(form["children_spec"]) == 2:
            # Positional arguments and keywords: those become parameters of a function that PyTorch compiles.
            _keywords(form["children_spec"][1])
        return json.dumps([int(protocol), form])
    except (TypeError, ValueError, KeyError, AttributeError):
        raise RefusedError("it does not say how its inputs and outputs are nested") from None


def _keywords(tree: Json) -> None:
    if tree["type"] == "builtins.dict":
        for name in json.loads(tree["context"]):
            _fits(name, _NAME, "in_spec")


def _container(tree: Json) -> Json:
    kind, children = tree["type"], [_container(child) for child in tree["children_spec"]]
    if kind is None:
        return {"type": None, "context": None, "children_spec": []}
    if kind in ("builtins.dict", "collections.OrderedDict", "collections.defaultdict"):
        context = tree["context"]
        # What a defaultdict makes for a missing key is named by module: PyTorch would import it.
        keys = context["dict_context"] if isinstance(context, dict) else json.loads(context)
        if not isinstance(keys, list) or len(keys) != len(children):
            raise ValueError
        if not all(key is None or isinstance(key, (str, int, float)) for key in keys):
            raise ValueError
        kind = "collections.OrderedDict" if kind == "collections.OrderedDict" else "builtins.dict"
        return {"type": kind, "context": json.dumps(keys), "children_spec": children}
    known = kind if kind == "builtins.list" else "builtins.tuple"
    return {"type": known, "context": "null", "children_spec": children}


# Where a text may stand, and of which form it is there.
_TEXTS: dict[str, Callable[[str, str], None]] = {
    "target": _operator,
    "as_operator": _operator,
    "class_fqn": _no_object,
    "expr_str": _size,
    "in_spec": _any_text,  # written anew
    "out_spec": _any_text,
    "as_string": _any_text,
    "as_strings": _any_text,
    "type": _form_of(_DEVICE),
    "verifiers": _form_of(re.compile(r"[A-Z_]+")),
    **dict.fromkeys(("as_float", "as_floats", "as_float_lists", "real", "imag"), _form_of(_INFINITE)),
    **dict.fromkeys(("name", "as_name", "user_input_name", "forward_arg_names"), _form_of(_NAME)),
    **dict.fromkeys(("parameter_name", "buffer_name", "tensor_constant_name", "fqn"), _form_of(_DOTTED)),
}
# Where the keys are names of values.
_NAMED = frozenset(
    {
        "tensor_values",
        "sym_int_values",
        "sym_bool_values",
        "sym_float_values",
        "custom_obj_values",
        "as_string_to_argument",
    }
)
