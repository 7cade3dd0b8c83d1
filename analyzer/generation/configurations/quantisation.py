"""``quantization_config`` of a model's configuration -> how each of its weight matrices is stored.

Names of modules, of methods and of keys stand in ``quantisation.toml``, with their sources.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import log2
from pathlib import Path
from typing import Any

from analyzer.generation.architecture import Architecture, Layer, Storage, products
from analyzer.generation.configurations.values import refusal
from analyzer.text import listed, printable

Config = Mapping[str, Any]
# Modules outside the layers, as transformers names them.
HEAD, EMBEDDING = "lm_head", "model.embed_tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageRule:
    """A rule for the modules of some patterns; ``storage`` is None where they stay as they are."""

    patterns: tuple[str, ...]
    storage: Storage | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantisation:
    """Storage of weights, by the names of their modules.

    Attributes:
        default: Of linear modules that no rule covers.
        rules: The first that covers a module counts.
        head: Whether the default holds for the head too.
        embedding: Whether it holds for the embedding too.
        experts_only: Whether it holds for experts alone.
        unknown: Keys that are not understood.
    """

    default: Storage | None
    rules: tuple[StorageRule, ...] = ()
    head: bool = False
    embedding: bool = False
    experts_only: bool = False
    unknown: tuple[str, ...] = ()

    def storage(self, names: Iterable[str]) -> Storage | None:
        """Return how the module that has one of these names is stored; None where its floats are."""
        names = tuple(names)
        # A path and every part of it of whole names.
        paths = [name.split(".") for name in names]
        sections = {
            ".".join(parts[start:end])
            for parts in paths
            for end in range(1, len(parts) + 1)
            for start in range(end)
        }
        for rule in self.rules:
            plain, regular = _sorted(rule.patterns)
            if not plain.isdisjoint(sections) or any(one.match(name) for one in regular for name in names):
                return rule.storage
        if HEAD in names:
            return self.default if self.head else None
        if EMBEDDING in names:
            return self.default if self.embedding else None
        if self.experts_only and not any(".experts" in name for name in names):
            return None
        return self.default


_DATA: Config = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_STORAGE = {name: Storage(**fields) for name, fields in _DATA["storage"].items()}
_SHARED = ("mlp.shared_experts", "feed_forward.shared_expert")


def names_of(
    role: str,
    layer: int,
    names: Mapping[str, tuple[str, ...]] | None = None,
    places: Sequence[str] = _DATA["places"],
) -> tuple[str, ...]:
    """Return the names under which a module of a layer may stand in a file.

    ``role`` is its name within the layer, as this package's steps have it; ``names`` are what the family calls
    modules, by role, where that is not the usual; ``places`` are what its layers may be called.
    """
    own = (names or {}).get(role)
    within: tuple[str, ...]
    if role in _DATA["expert_words"]:
        # A mixture's own name is none of a published file, where its experts are modules of their own.
        usual = _DATA["expert_places"]
        own = own or usual
        # Those of transformers' usual name have other ones in files of before.
        known = (*own, *usual) if set(own) & set(usual) else own
        mixtures = [f"{place}{one}" for place in known for one in (".0", "")]
        within = tuple(f"{mixture}.{word}" for mixture in mixtures for word in _DATA["expert_words"][role])
    elif own is not None:
        within = own
    elif role.startswith("mlp.shared_expert."):
        within = (role, *(role.replace("mlp.shared_expert", place, 1) for place in _SHARED))
    elif role.startswith("mixer."):
        within = (role, role.replace("mixer.", "mamba.", 1))
    else:
        within = (role, *_DATA["aliases"].get(role, ()))
    return tuple(f"{place.format(layer)}.{name}" for place in places for name in within)


# A file may have a rule for each of some thousand modules.
@lru_cache(maxsize=2**14)
def _sorted(patterns: tuple[str, ...]) -> tuple[frozenset[str], tuple[re.Pattern[str], ...]]:
    """Return names, whole or parts of paths; and regular expressions, which begin where a name begins."""
    plain, regular = set(), []
    for pattern in patterns:
        section = pattern.removeprefix("re:")
        if section == pattern and re.fullmatch(r"[\w.\-]+", pattern):
            plain.add(pattern.strip("."))
        elif (
            section == pattern
            and re.fullmatch(r"[\w.\-*?]+", pattern)
            and ".*" not in pattern.replace(".*.", "")
        ):
            # ``model.layers.*.self_attn`` and ``*mlp.gate*``: of a module, and of all within it.
            escaped = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
            regular.append(re.compile(rf"(?:.*\.)?{escaped}(?:\..*)?$"))
        else:
            regular.append(re.compile(section))
    return frozenset(plain), tuple(regular)


# Storage by words.

_PER_TENSOR, _NVFP4, _MXFP4, _MXFP8 = (_STORAGE[name] for name in ("fp8", "nvfp4", "mxfp4", "mxfp8"))
_BITNET = Storage(bits=2, block=0, block_rows=0)


_LARGEST_BLOCK, _MOST_BITS = 2**20, 8


def _block_of(value: object, default: int) -> int:
    """Return elements of one scale; 0, a whole row, for -1 and null."""
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value == 0 or value > _LARGEST_BLOCK:
        raise _wrong("group_size", value)
    return max(0, value)


def _mapping(value: object) -> Config:
    return value if isinstance(value, Mapping) else {}


def _between(value: object, key: str, least: int = 1, most: int = _MOST_BITS) -> int:
    """Return a whole number of a section, where it lies between these two."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise _wrong(key, value)
    return value


def _packed(section: Config, *, group: int, zero: int | None = None) -> Storage:
    """Return integers in groups along the inputs, each with a scale of 16 bits and a zero point.

    ``group`` is the size where none is said, ``zero`` the bits of a zero point: None for those of an element.
    """
    bits = _between(section.get("bits"), "bits")
    block = _block_of(section.get("group_size"), group)
    return Storage(bits=bits, block=block, zero_bits=bits if zero is None else zero)


def _of_arguments(weights: Config, packing: str = "") -> Storage | None:
    """Return storage by compressed-tensors' ``QuantizationArgs``, which ModelOpt's groups are like."""
    if not weights:
        return None
    bits = _between(weights.get("num_bits"), "num_bits")
    kind, strategy = weights.get("type", "int"), weights.get("strategy")
    if kind not in ("int", "float"):
        raise _wrong("type", kind)
    group = weights.get("group_size")
    symmetric = weights.get("symmetric", True) is not False
    zero = 0 if symmetric else (bits if "pack" in packing else 8)
    if kind == "float" and bits == 4:
        scale = str(weights.get("scale_dtype", ""))
        narrow = _MXFP4 if group == _MXFP4.block or "e8m0" in scale or "mxfp4" in packing else _NVFP4
        return replace(narrow, block=_block_of(group, narrow.block))
    made = Storage(bits=bits, is_float=kind == "float" and bits == 8, zero_bits=zero)
    if strategy == "block" or weights.get("block_structure") is not None:
        rows, columns = _sides(weights.get("block_structure"))
        return replace(made, block=columns, block_rows=rows)
    if strategy in ("group", "tensor_group") or (strategy is None and group is not None and group != -1):
        e8m0 = made.is_float and group == _MXFP8.block
        return replace(made, block=_block_of(group, 128), scale_bits=8 if e8m0 else 16)
    if strategy == "tensor" or (strategy is None and made.is_float):
        return replace(made, block=0, block_rows=0)
    if strategy not in (None, "channel", "token"):
        raise _wrong("strategy", strategy)
    return replace(made, block=0)


def _sides(value: object) -> tuple[int, int]:
    """Return rows and columns of a block, ``[128, 128]`` or ``"128x128"``."""
    section = value.split("x") if isinstance(value, str) else value
    if isinstance(section, Sequence) and len(section) == 2:
        sides = [int(side) for side in section if isinstance(side, int) or str(side).isdigit()]
        if len(sides) == 2 and all(0 < side <= _LARGEST_BLOCK for side in sides):
            return sides[0], sides[1]
    raise _wrong("weight_block_size", value)


# Patterns by key.


def _patterns(section: Config, *keys: str) -> tuple[str, ...]:
    result: list[str] = []
    for key in keys:
        value = section.get(key)
        if isinstance(value, str):
            value = [value]
        if value is not None and not isinstance(value, list | tuple):
            raise _wrong(key, value)
        result += [_checked(one, key) for one in value or ()]
    return tuple(result)


def _checked(pattern: object, key: str) -> str:
    """Return a pattern that can be matched in time: none that a stranger nested."""
    if not isinstance(pattern, str) or not pattern or len(pattern) > _LONGEST or _NESTED.search(pattern):
        raise _wrong(key, pattern)
    try:
        _sorted((pattern,))
    except (re.error, OverflowError, RecursionError) as error:
        raise _wrong(key, pattern) from error
    return pattern


_LONGEST = 400
# A repeated group that repeats within takes exponential time.
_NESTED = re.compile(r"[+*}]\)[+*{]")
_SKIPPED = ("modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules", "exclude")


def _but(section: Config, *keys: str) -> tuple[StorageRule, ...]:
    patterns = _patterns(section, *(keys or _SKIPPED))
    return (StorageRule(patterns=patterns, storage=None),) if patterns else ()


def _named(section: Config, key: str, read: Callable[[Config], Storage | None]) -> tuple[StorageRule, ...]:
    """Return rules of a table by pattern, the last of which counts in files that list several."""
    table = section.get(key)
    if table is None:
        return ()
    if not isinstance(table, Mapping):
        raise _wrong(key, table)
    rules = []
    for pattern, value in table.items():
        if value is not None and not isinstance(value, Mapping):
            raise _wrong(key, value)
        rules.append(StorageRule(patterns=(_checked(pattern, key),), storage=read(value) if value else None))
    return tuple(rules)


# Methods.


def _gptq(section: Config) -> Quantisation:
    # Zero points are stored even where all are the same (gptqmodel/nn_modules/qlinear).
    def read(values: Config) -> Storage:
        return _packed({**section, **values}, group=128)

    table = section.get("dynamic")
    dynamic: list[StorageRule] = []
    # GPTQModel: "-:" leaves a module out, "+:" or nothing changes what is said of it (quantization/config.py).
    for key, values in table.items() if isinstance(table, Mapping) else ():
        left_out = str(key).startswith("-:")
        pattern = _checked("re:" + re.sub(r"^[+-]:", "", str(key)), "dynamic")
        own = read(values if isinstance(values, Mapping) else {}) if not left_out else None
        dynamic.append(StorageRule(patterns=(pattern,), storage=own))
    lists = section.get("modules_in_block_to_quantize")
    if lists is not None and not isinstance(lists, list | tuple):
        raise _wrong("modules_in_block_to_quantize", lists)
    within = [name for names in lists or () for name in (names if isinstance(names, list) else [names])]
    # AutoRound: 16 bits and more are floats.
    extra = _named(section, "extra_config", lambda own: None if own.get("bits") in _FLOAT_BITS else read(own))
    rules = (*dynamic, *extra, *_but(section))
    default = read({})
    if within:
        key = "modules_in_block_to_quantize"
        rules = (*rules, StorageRule(patterns=_patterns({key: within}, key), storage=default))
    return Quantisation(default=None if within else default, rules=rules, head=section.get("lm_head") is True)


_FLOAT_BITS = (16, 32)


def _auto_round(section: Config) -> Quantisation:
    kind = str(section.get("data_type", "int"))
    if kind.startswith("mx"):
        narrow = _MXFP4 if _between(section.get("bits", 4), "bits") == 4 else _MXFP8
        return Quantisation(default=narrow, rules=_but(section))
    if kind.startswith("nv"):
        return Quantisation(default=_NVFP4, rules=_but(section))
    return _gptq({"bits": 4, **section})


def _bitsandbytes(section: Config) -> Quantisation:
    rules = _but(section, "llm_int8_skip_modules", "modules_to_not_convert")
    if section.get("load_in_8bit") is True and section.get("load_in_4bit") is True:
        raise _contrary("load_in_4bit", "load_in_8bit")
    if section.get("load_in_8bit") is True or section.get("_load_in_8bit") is True:
        return Quantisation(default=Storage(bits=8, block=0, scale_bits=32), rules=rules)
    if section.get("load_in_4bit") is not True and section.get("_load_in_4bit") is not True:
        raise _unknown_way(section)
    # 64 elements of one scale of 32 bits; of 8 where scales are quantised again (bitsandbytes/functional.py).
    twice = section.get("bnb_4bit_use_double_quant") is True
    return Quantisation(default=Storage(bits=4, block=64, scale_bits=8 if twice else 32), rules=rules)


def _compressed(section: Config) -> Quantisation:
    groups = section.get("config_groups")
    if groups == {} and isinstance(section.get("kv_cache_scheme"), Mapping):
        # The cache alone is quantised.
        return Quantisation(default=None)
    if not isinstance(groups, Mapping) or not groups:
        raise _unknown_way(section)
    rules, head, unknown = list(_but(section)), False, []
    default: Storage | None = None
    whole = str(section.get("format", ""))
    for group in groups.values():
        if not isinstance(group, Mapping):
            raise _wrong("config_groups", group)
        weights = group.get("weights")
        if weights is not None and not isinstance(weights, Mapping):
            raise _wrong("weights", weights)
        made = _of_arguments(weights or {}, str(group.get("format") or whole))
        targets = _patterns(group, "targets") or ("Linear",)
        for target in targets:
            # A class of modules, which a name has precedence over.
            if target == "Linear":
                default, head = made, True
            elif target == "Embedding":
                rules.append(StorageRule(patterns=(EMBEDDING,), storage=made))
            elif target[:1].isupper() and "." not in target:
                unknown.append(f"targets: {target}")
            else:
                rules.append(StorageRule(patterns=(target,), storage=made))
    sparsity = section.get("sparsity_config")
    if isinstance(sparsity, Mapping) and sparsity.get("format", "dense") != "dense":
        unknown.append("sparsity_config")
    return Quantisation(default=default, rules=tuple(rules), head=head, unknown=tuple(unknown))


def _fp8(section: Config) -> Quantisation:
    sides = section.get("weight_block_size")
    default = _PER_TENSOR
    if sides is not None:
        rows, columns = _sides(sides)
        narrow = str(section.get("scale_fmt", "")).startswith("ue8m0")
        default = replace(default, block=columns, block_rows=rows, scale_bits=8 if narrow else 32)
    # DeepSeek V4's experts (FineGrainedFP8Config).
    experts = str(section.get("expert_dtype", "fp8"))
    if experts not in ("fp8", "fp4"):
        raise _wrong("expert_dtype", experts)
    rules = _but(section)
    if experts == "fp4":
        rules = (*rules, StorageRule(patterns=("experts",), storage=_MXFP4))
    chosen = _patterns(section, "modules_to_convert")
    if chosen:
        rules = (*rules, StorageRule(patterns=chosen, storage=default))
    return Quantisation(default=None if chosen else default, rules=rules)


def _modelopt(section: Config) -> Quantisation:
    inner = section.get("quantization")
    section = {**section, **inner} if isinstance(inner, Mapping) else section

    def read(values: Config) -> Storage | None:
        name = str(values.get("quant_algo", "")).upper()
        if name not in _DATA["modelopt"]:
            raise refusal(
                f"`quant_algo` of the configuration is not known: {printable(name)[:40]}",
                hint=f"known are {', '.join(_DATA['modelopt'])}",
            )
        storage, size = _STORAGE.get(_DATA["modelopt"][name]), values.get("group_size")
        return replace(storage, block=_block_of(size, 0)) if storage and storage.bits == 4 and size else storage

    layers = _named(section, "quantized_layers", read)
    if str(section.get("quant_algo", "")).upper() == "MIXED_PRECISION":
        if layers:
            return Quantisation(default=None, rules=(*_but(section), *layers))
        return _compressed(section)
    return Quantisation(default=read(section), rules=(*layers, *_but(section)))


def _awq(section: Config) -> Quantisation:
    # What stands under both keys of one thing has to be the same.
    modes: dict[str, Any] = {}
    for key, other, usual in (("bits", "w_bit", 4), ("group_size", "q_group_size", 128)):
        if key in section and other in section and section[key] != section[other]:
            raise _contrary(key, other)
        modes[key] = section.get(key, section.get(other, usual))
    return Quantisation(default=_packed(modes, group=128), rules=_but(section))


def _hqq(section: Config) -> Quantisation:
    # A scale and a zero point of 16 bits for each group (hqq/core/quantize.py).
    inner = _mapping(section.get("quant_config", section))

    def read(values: Config) -> Storage:
        own = _mapping(values.get("weight_quant_params", values))
        bits = {"bits": own.get("nbits", 4), "group_size": own.get("group_size")}
        return _packed(bits, group=64, zero=16)

    dynamic = section.get("dynamic_config")
    named = inner if all("." in key for key in inner) and inner else dynamic
    rules = _but(section, "skip_modules", "modules_to_not_convert")
    if isinstance(named, Mapping) and named:
        return Quantisation(
            default=None, rules=(*rules, *_named({"dynamic_config": named}, "dynamic_config", read))
        )
    return Quantisation(default=read(inner), rules=rules)


def _torchao(section: Config) -> Quantisation:
    kind = section.get("quant_type")
    kind = kind.get("default", kind) if isinstance(kind, Mapping) else kind
    data = _mapping(kind.get("_data") if isinstance(kind, Mapping) else section.get("quant_type_kwargs"))
    both = section.get("include_input_output_embeddings") is True
    table = data.get("module_fqn_to_config", data.get("fqn_to_config"))
    if isinstance(table, Mapping):
        rest = {key: value for key, value in table.items() if key != "_default"}
        rules = _named({"module_fqn_to_config": rest}, "module_fqn_to_config", _of_torchao)
        general = table.get("_default")
        default = _of_torchao(general) if isinstance(general, Mapping) else None
        return Quantisation(default=default, rules=(*rules, *_but(section)), head=both, embedding=both)
    made = _of_torchao({"_type": kind.get("_type") if isinstance(kind, Mapping) else kind, "_data": data})
    return Quantisation(default=made, rules=_but(section), head=both, embedding=both)


def _of_torchao(section: Config) -> Storage:
    """By the name of a configuration class, or of its older function (torchao/quantization/quant_api.py)."""
    data = _mapping(section.get("_data"))
    name = re.sub(r"[^a-z0-9]", "", str(section.get("_type", "")).lower()).removesuffix("config")
    group = data.get("group_size")
    if "int4weight" in name:
        # Scale and zero point in 16 bits each; those that activations of 8 bits multiply have a scale alone.
        alone = name.startswith(("int8", "float8"))
        return Storage(bits=4, block=_block_of(group, 32 if alone else 128), zero_bits=0 if alone else 16)
    if "int8weight" in name:
        return Storage(bits=8, block=_block_of(group, 0))
    if name.startswith("float8"):
        by_row = "PerRow" in str(data.get("granularity", ""))
        return replace(_PER_TENSOR, block_rows=1 if by_row or "weightonly" in name else 0)
    if name.startswith("nvfp4"):
        return _NVFP4
    if name.startswith("mx"):
        return _MXFP8 if "8" in str(data.get("weight_dtype", data.get("elem_dtype", "4"))) else _MXFP4
    raise refusal(
        f"`quant_type` of torchao is not known: {printable(str(section.get('_type')))[:40]}",
        hint="known are those of int4, int8 and float8 weights, of NVFP4 and of MX formats",
    )


def _quark(section: Config) -> Quantisation:
    """Read AMD Quark's scheme of all layers, and of those that it names (quark/torch/quantization/config)."""

    def read(values: Config) -> Storage | None:
        weight = values.get("weight")
        weight = weight[0] if isinstance(weight, list) and weight else weight
        if not isinstance(weight, Mapping):
            return None
        word, scheme = str(weight.get("dtype", "")), str(weight.get("qscheme", ""))
        width = re.match(r"(?:u?int|fp|mxfp|mx)_?([468])?", word)
        if width is None:
            raise _wrong("dtype", word)
        bits = int(width[1] or 4)
        group = _block_of(weight.get("group_size"), 0) if "group" in scheme else 0
        if "fp4" in word or word.startswith("mx"):
            return replace(_MXFP4, bits=bits, block=group or 32)
        zero = 0 if weight.get("symmetric", True) is not False else bits
        rows = 0 if "tensor" in scheme else 1
        return Storage(bits=bits, is_float=word.startswith("fp8"), block=group, block_rows=rows, zero_bits=zero)

    general = section.get("global_quant_config")
    default = read(general) if isinstance(general, Mapping) else None
    layers = _named(section, "layer_quant_config", read)
    return Quantisation(default=default, rules=(*_but(section), *layers), head=True)


def _mlx(section: Config) -> Quantisation:
    """Read MLX's section, whose other keys are names of modules; tables are quantised too (mlx/nn/layers)."""

    def read(values: Config) -> Storage:
        mode = str(values.get("mode", section.get("mode", "affine")))
        if mode in ("mxfp4", "nvfp4", "mxfp8"):
            return _STORAGE[mode]
        return _packed({**section, **values}, group=64, zero=16)

    rules = [
        StorageRule(patterns=(key,), storage=read(value) if isinstance(value, Mapping) else None)
        for key, value in section.items()
        if _names_module(key)
    ]
    return Quantisation(default=read({}), rules=tuple(rules), head=True, embedding=True)


def _names_module(key: str) -> bool:
    return "." in key or key in (HEAD, EMBEDDING)


def _aqlm(section: Config) -> Quantisation:
    """Read groups of weights as sums of vectors of codebooks, with a scale for each row (aqlm/inference.py)."""
    given = ("num_codebooks", "nbits_per_codebook", "in_group_size", "out_group_size")
    number, width, inner, outer = (
        _between(section.get(key, usual), key, 1, most)
        for key, usual, most in zip(given, (1, 16, 8, 1), (64, 20, 64, 64), strict=True)
    )
    group = inner * outer
    made = Storage(bits=number * width / group, block=0, table=number * 2**width * group)
    return Quantisation(default=made, rules=_but(section, "linear_weights_not_to_quantize", *_SKIPPED))


def _vptq(section: Config) -> Quantisation:
    """Read vectors of two codebooks, the second of what the first leaves (vptq/layers/vqlinear.py)."""

    def read(values: Config) -> Storage:
        # Of the outliers and the others, those of the others.
        length, *sizes = (
            value[-1] if isinstance(value, list) and value else value
            for value in map(values.get, ("vector_lens", "num_centroids", "num_res_centroids"))
        )
        length = _between(length, "vector_lens", 1, 64)
        groups = _between(values.get("group_num", 1), "group_num", 1, 2**12)
        used = [_between(size, "num_centroids", 2, 2**20) for size in sizes if size not in (None, 0, -1)]
        if not used:
            raise _wrong("num_centroids", sizes[0])
        bits = sum(map(log2, used)) / length
        return Storage(bits=bits, block=0, block_rows=0, table=groups * sum(used) * length)

    rules = _named(section, "config_for_layers", read)
    if not rules:
        raise _unknown_way(section)
    return Quantisation(default=None, rules=rules)


def _exllama(section: Config) -> Quantisation:
    """Read bits of a weight, a mean in which all else is counted (exllamav2 and 3, their ``conversion``)."""

    def read(key: str) -> Storage:
        bits = section.get(key)
        if isinstance(bits, bool) or not isinstance(bits, int | float) or not 1 <= bits <= _MOST_BITS:
            raise _wrong(key, bits)
        return Storage(bits=bits, block=0, block_rows=0)

    rules = (StorageRule(patterns=(HEAD,), storage=read("head_bits")),) if "head_bits" in section else ()
    return Quantisation(default=read("bits"), rules=rules)


def _higgs(section: Config) -> Storage:
    made = _packed({"bits": 4, **section}, group=256, zero=0)
    width = int(made.bits) * _between(section.get("p", 2), "p", 1, 2)
    return replace(made, table=2**width * 2)


def _quanto(section: Config) -> Storage:
    word = str(section.get("weights", "int8"))
    if word not in _DATA["quanto"]:
        raise _wrong("weights", word)
    return Storage(**_DATA["quanto"][word])


# Methods that store all products alike, but for those that the file leaves out: the storage, None for floats.
_ALIKE: Mapping[str, Callable[[Config], Storage | None]] = {
    # Four values a byte and one scale (transformers/integrations/bitnet.py), or floats until they are read.
    "bitnet": lambda section: _BITNET if section.get("quantization_mode") != "online" else None,
    "fp_quant": lambda section: _MXFP4 if str(section.get("forward_dtype")).startswith("mx") else _NVFP4,
    "higgs": _higgs,
    "metal": lambda section: _packed({"bits": 4, **section}, group=64, zero=16),
    "quanto": _quanto,
    **{
        name: lambda _, storage=storage: _STORAGE[storage]  # type: ignore[misc]
        for name, storage in (_DATA["alike"] | _DATA["experts"]).items()
    },
}
_METHODS: Mapping[str, Callable[[Config], Quantisation]] = {
    "aqlm": _aqlm,
    **dict.fromkeys(("auto-round", "intel/auto-round"), _auto_round),
    **dict.fromkeys(("awq", "awq_marlin"), _awq),
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed,
    **dict.fromkeys(("exl2", "exl3"), _exllama),
    "fp8": _fp8,
    **dict.fromkeys(("gptq", "gptq_marlin", "gptqmodel"), _gptq),
    "hqq": _hqq,
    "mlx": _mlx,
    **dict.fromkeys(("modelopt", "modelopt_fp4"), _modelopt),
    "quark": _quark,
    "torchao": _torchao,
    "vptq": _vptq,
}


def quantisation_of(config: Config) -> Quantisation | None:
    """Return how a configuration says that weights are stored; None where it says nothing.

    Raises:
        UsageError: They are stored in a way that is not known, or a value cannot be.
    """
    # The first releases of llm-compressor wrote the other key.
    section: Any = config.get("quantization_config", config.get("compression_config"))
    if section is None:
        section = _mapping(config.get("text_config")).get("quantization_config")
    if section is None:
        return None
    if not isinstance(section, Mapping):
        raise _unknown_way(section)
    method = str(section.get("quant_method", "")).lower().replace("compressed_tensors", "compressed-tensors")
    # Files of the first releases of bitsandbytes name no method.
    if not method and (section.get("load_in_4bit") is True or section.get("load_in_8bit") is True):
        method = "bitsandbytes"
    elif not method and "bits" in section:
        method = "mlx"
    if method in _ALIKE:
        default, experts_only = _ALIKE[method](section), method in _DATA["experts"]
        result = Quantisation(default=default, rules=_but(section), experts_only=experts_only)
    elif method in _METHODS:
        result = _METHODS[method](section)
    else:
        raise _unknown_way(section)
    # Null, no and nothing say nothing.
    understood = {*_DATA["beside"].split(), *_DATA["read"].split()}
    if method == "mlx":
        understood |= set(filter(_names_module, section))
    strange = sorted(key for key in set(section) - understood if section[key] not in (None, False, [], {}))
    return replace(result, unknown=(*result.unknown, *map(str, strange)))


def _wrong(key: str, value: object) -> Exception:
    return refusal(
        f"`{key}` of the `quantization_config` is not known: {printable(repr(value))[:60]}",
        hint="compare it with the config.json that the model was published with",
    )


def _contrary(key: str, other: str) -> Exception:
    return refusal(
        f"`{key}` and `{other}` of the `quantization_config` contradict each other",
        hint="leave one of them out",
    )


def _unknown_way(section: object) -> Exception:
    method = section.get("quant_method") if isinstance(section, Mapping) else section
    return refusal(
        f"the weights are stored in a way that is not known: {printable(str(method))[:40]}",
        hint=f"known are {', '.join(sorted({*_METHODS, *_ALIKE}))}",
    )


# Of a model.


def stored(architecture: Architecture, quantisation: Quantisation) -> tuple[Architecture, Storage | None]:
    """Return the architecture with the storage of each of its matrices, and that of most elements.

    That is None where all of them are floats.
    """
    elements: dict[Storage, int] = {}
    encoder, place = architecture.encoder, f"{architecture.place}.{{}}"
    usual = _DATA["places"]
    places = usual if not architecture.place else (place,) if encoder is not None else (place, *usual)

    def of_all(layers: Sequence[Layer], places: Sequence[str]) -> tuple[Layer, ...]:
        made = []
        for number, layer in enumerate(layers):
            result, names = [], dict(layer.names)
            for role, size in products(layer, architecture):
                storage = quantisation.storage(names_of(role, number, names, places))
                if storage is not None:
                    result.append((role, storage))
                    elements[storage] = elements.get(storage, 0) + size
            made.append(replace(layer, stored=tuple(result)))
        return tuple(made)

    layers = of_all(architecture.layers, places)
    if encoder is not None:
        encoder = replace(encoder, layers=of_all(encoder.layers, (f"{encoder.place}.{{}}",)))
    around = []
    table = architecture.vocabulary * (architecture.embedding_size or architecture.hidden)
    # A tied head is the embedding, which is quantised where the file says so of the embedding itself.
    named = quantisation.embedding or any(EMBEDDING in rule.patterns for rule in quantisation.rules)
    for name in ((EMBEDDING,) if named else ()) if architecture.tied else (HEAD, EMBEDDING):
        storage = quantisation.storage((name, f"language_model.{name}"))
        if storage is not None:
            around.append((name, storage))
            elements[storage] = elements.get(storage, 0) + table
    notes = architecture.notes
    if quantisation.unknown:
        keys = listed(f"`{printable(key)}`" for key in quantisation.unknown[:_SHOWN])
        notes = (
            *notes,
            f"Not understood of `quantization_config`: {keys}. Weights may be larger or smaller, "
            "and the intervals of times are widened.",
        )
    return (
        replace(architecture, layers=layers, encoder=encoder, stored=tuple(around), notes=notes),
        max(elements, key=lambda storage: elements[storage], default=None),
    )


_SHOWN = 5
