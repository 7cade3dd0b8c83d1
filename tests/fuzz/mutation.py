"""What all mutators draw from: choices of a seeded generator, values at the ends of types, hostile texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")

INTEGERS = (
    0, 1, -1, 2, 3, 4, -2, 7, 16, 127, 128, 255, 256, 1000, 4096, 65_535, 10**6, 2**31 - 1, 2**31, -(2**31),
    2**32,
    10**12, 2**53 + 1, 2**62, 2**63 - 1, -(2**63),
)  # fmt: skip
FLOATS = (
    0.0, -0.0, 1.0, -1.0, 0.5, 1e-38, 1e-45, 1e30, 1e38, -1e38, 3.4028234663852886e38, float("nan"),
    float("inf"),
    float("-inf"), 2.0**63, 1e-300,
)  # fmt: skip

CANARY = "canary"
"""Stands in every hostile text that would be a command, so that an output that obeys it can be told."""

LONE = "@@LONE@@"
"""Replaced in the finished file by bytes that are no text: protobuf's own interface refuses to write them."""

TEXTS = (
    "", " ", "a", "x", "y", "batch", "a\0b", "a\nb", "a\rb", "a\r\nb", "a\tb", f"\n::error::{CANARY}",
    f"::error::{CANARY}", f" ::stop-commands::{CANARY}", f"x ::warning file=a::{CANARY}",
    f"\r::add-mask::{CANARY}",
    f"##[error]{CANARY}", f"\u2028::error::{CANARY}", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x7f", "\x85",
    "\x9b31m", "\u202eright to left\u202c", "\ufeff", "\u200b", "é", "日本語",
    "😀", "<script>alert(1)</script>",
    "</script><!--", "'\"><img src=x onerror=alert(1)>", "{{ 7 * 7 }}", "=1+1", " =1+1", "@SUM(A1)", "a,b;c",
    "[bold]x[/bold]",
    "[/]", "%s%n", "${HOME}", "$(touch canary)", "`id`", "../../etc/passwd", "/etc/passwd", "C:\\x", "a/b/c",
    "/", "//", ".", "..",
    "a.b.c", "node_1", "-", "--help", "NaN", "null", "0", "x" * 300, "x" * 20_000, "é" * 300, "a " * 200, LONE,
    f"name{LONE}", "](http://a)", "| a | b |", "# title", "]]>", "&amp;", "&#10;", "ai.onnx", "com.microsoft",
)  # fmt: skip


class Draw:
    """A generator of one seed: the same seed makes the same choices everywhere."""

    def __init__(self, *seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def below(self, end: int) -> int:
        """A whole number from 0 to ``end`` - 1."""
        return int(self.generator.integers(end))

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return float(self.generator.random()) < probability

    def among(self, items: Sequence[T]) -> T:
        """One of the items."""
        return items[self.below(len(items))]

    def integer(self) -> int:
        """A whole number at the end of a type, or a small one."""
        return self.among(INTEGERS) if self.chance(0.7) else self.below(64) - 8

    def integers(self) -> list[int]:
        """A list that is empty, short, or long."""
        if self.chance(0.03):
            return [self.integer()] * self.among((100, 10_000))
        return [self.integer() for _ in range(self.among((0, 1, 1, 2, 3, 4, 5, 8)))]

    def number(self) -> float:
        """A floating-point number at the end of a type."""
        return self.among(FLOATS)

    def text(self) -> str:
        """A hostile text, or two in a row."""
        return self.among(TEXTS) + (self.among(TEXTS) if self.chance(0.1) else "")

    def few(self) -> int:
        """How many changes a case has: one is likeliest."""
        return self.among((1, 1, 1, 2, 2, 3, 4, 6))


def without_lone_bytes(content: bytes) -> bytes:
    """Puts bytes that are no UTF-8 where ``LONE`` stands; lengths stay."""
    return content.replace(LONE.encode(), b"\xff\xfe\xed\xa0\x80\xc0\x80\xf5")


def scrambled(content: bytes, draw: Draw) -> bytes:
    """Bytes flipped, cut, repeated, put elsewhere, or taken out."""
    data = bytearray(content)
    for _ in range(draw.few()):
        if not data:
            return b""
        at, to = sorted((draw.below(len(data) + 1), draw.below(len(data) + 1)))
        way = draw.below(8)
        if way <= 2:  # as likely as all others: what is cut mostly ends as "no ONNX model"
            place = draw.below(len(data))
            data[place] = (
                data[place] ^ (1 << draw.below(8)) if draw.chance(0.5) else draw.among((0, 1, 127, 128, 255))
            )
        elif way == 3:
            del data[at:]
        elif way == 4:
            data[at:at] = data[at : min(to, at + 64)]
        elif way == 5:
            del data[at : min(to, at + 1 + draw.below(16))]
        elif way == 6:
            data[at:at] = bytes(draw.below(256) for _ in range(1 + draw.below(8)))
        else:
            data[at : at + 10] = b"\xff" * 9 + b"\x01"  # the largest number that protobuf writes
    return bytes(data)
