"""``config.json`` of a model as Hugging Face keeps it: read as data, nothing that it names is run."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from analyzer.errors import UsageError
from analyzer.toml_file import read_within

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
    """What a model's configuration says.

    Args:
        path: A folder with ``config.json``, or such a file.

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
    """Whether MODEL is a saved report: JSON, and no model's configuration."""
    if os.path.basename(text) != CONFIG_NAME:
        return text.endswith(".json")
    try:  # the report of config.py is called so too
        return "schema_version" in read_config(text)
    except UsageError:
        return False


def is_genai(text: str) -> bool:
    """Whether MODEL is a folder of ONNX Runtime GenAI, or its ``genai_config.json``."""
    path = Path(text)
    return path.name == GENAI_NAME or (path.is_dir() and (path / GENAI_NAME).is_file())


def class_of(config: Mapping[str, Any]) -> str | None:
    """The class of transformers that the weights are of; None where the configuration names none."""
    names = config.get("architectures")
    return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else None


def names_generation(config: Mapping[str, Any]) -> bool:
    """Whether the class that a configuration names generates token by token."""
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
