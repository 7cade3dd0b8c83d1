"""The record's numbers by the values that they may take; from them come the decoding's checks and the schema.

A whole number stays an ``int`` where a field may hold either, so that a record that is read and written again
is the same text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

# No figure of a model or machine comes near; the products of three of them are still finite.
LARGEST = 1e30
# Never 0; 1 over it is LARGEST.
_LEAST = 1e-30

# Two readings of a number: msgspec makes a float of a whole one where a field is a float alone.
Count = Annotated[int, Meta(ge=0)]
"""A number of things, or the position of one: never negative."""

Amount = Annotated[float, Meta(ge=0, le=LARGEST)] | Annotated[int, Meta(ge=0)]
"""A time, a size, a price, a share: never negative."""

Positive = Annotated[float, Meta(ge=_LEAST, le=LARGEST)] | Annotated[int, Meta(ge=1)]
"""What figures are divided by: a rate of a device, a share of time in use."""

if TYPE_CHECKING:
    Value = Any
else:
    Element = bool | int | float | str | None
    One = Element | list[Element] | dict[str, Element]
    Two = Element | list[One] | dict[str, One]
    Three = Element | list[Two] | dict[str, Two]
    # What operators and runs bring along, shown as it is; no deeper, so that what walks it may be recursive.
    Value = Element | list[Three] | dict[str, Three]
