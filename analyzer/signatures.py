"""Signatures that name every option, for notebooks and `help()` (leaf: imports nothing)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

_Documented = TypeVar("_Documented", bound=Callable[..., Any])


def names_keywords(options: type) -> Callable[[_Documented], _Documented]:
    """Makes ``inspect.signature`` name the keys of ``options`` in place of ``**options``.

    A type checker reads ``Unpack[AnalyzeOptions]`` by itself; IPython completes what ``inspect`` gives.
    Defaults are shown as ``...``: an option that is left out is not the same as one that is None.

    Args:
        options: The TypedDict of the function's keywords.
    """

    def mark(function: _Documented) -> _Documented:
        signature = inspect.signature(function)
        own = [item for item in signature.parameters.values() if item.kind is not item.VAR_KEYWORD]
        keywords = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=...,
                annotation=getattr(annotation, "__forward_arg__", annotation),
            )
            for name, annotation in options.__annotations__.items()
        ]
        function.__signature__ = signature.replace(parameters=[*own, *keywords])  # type: ignore[attr-defined]
        return function

    return mark
