"""Predicted kernels beside those of the recorded cards: no constant of a kernel is fitted to these.

    python benchmarks/recorded_kernels.py

Reads ``tests/data/gpu/*families*.json.gz`` and prints a table. What was measured are ONNX Runtime's kernels on
an H100 and an H200, many copies of an operator with weights and caches of their own in one CUDA graph; what is
predicted are the kernels of the tables that ``fit_kernels.py`` reads, for one copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import kernel_families as families
import numpy as np
from fit_kernels import SIZES, of_size
from kernel_tables import Array, Calls
from recorded_cards import RECORDS, Rows, read

from analyzer.devices.catalogue import device

CARDS = {"H100": ("h100-families-second", "h100-80gb-sxm"), "H200": ("h200-families", "h200")}


def calls_of(card: str, rows: Rows, columns: Mapping[str, Array]) -> Calls:
    """Rows of a record as calls of one card."""
    seconds = np.array([row["graph_s"] / row["copies"] for row in rows])
    return Calls(name=card, card=device(CARDS[card][1]), chip="GH100", columns=columns, seconds=seconds)


def numbers(rows: Rows, name: str) -> Array:
    return np.array([float(row[name]) for row in rows])


def products(card: str, rows: Rows) -> Calls:
    columns = {"m": "rows", "n": "columns", "k": "depth", "turns": "copies"}
    return calls_of(card, rows, {name: numbers(rows, told) for name, told in columns.items()})


def attentions(card: str, rows: Rows) -> Calls:
    columns = {
        "batch": "batch", "query": "tokens", "context": "context", "heads": "heads", "kv_heads": "kv_heads",
        "head_dim": "head_size", "window": "window",
    }  # fmt: skip
    found = {name: numbers(rows, told) for name, told in columns.items()}
    # A decode's token is the last of its context there.
    found["context"] = np.where(found["context"] > 0, found["context"] - found["query"], 0.0)
    found["element_bytes"] = found["cache_bytes"] = np.full(len(rows), 2.0)
    keys = found["context"] + found["query"]
    cached = 2 * found["batch"] * found["kv_heads"] * keys * found["head_dim"] * 2.0
    found["kept"] = (numbers(rows, "copies") - 1) * cached
    return calls_of(card, rows, found)


def halves(row: dict[str, Any]) -> bool:
    return bool(row["dtype"] in ("float16", "bfloat16"))


def kinds() -> list[tuple[str, str, Callable[[str, Rows], Calls], Callable[[dict[str, Any]], bool], Any]]:
    """Title, family of the record, columns, rows, and what predicts them."""
    plain = partial(families.product_seconds, values={})
    tf32 = families.ProductType("tf32", element_bytes=4.0, weight_bytes=4.0)
    single = partial(families.product_seconds, values={}, kind=tf32)
    four = partial(families.product_seconds, values={}, kind=families.INT4)
    attends = partial(families.attention_seconds, values={})
    return [
        ("products, 16 bits", "product", products, halves, plain),
        ("products, TF32", "product", products, lambda row: row["dtype"] == "float32", single),
        (
            "int4 weights, one row",
            "packed product",
            products,
            lambda row: row["bits"] == 4 and row["rows"] == 1 and halves(row),
            four,
        ),
        (
            "int4 weights, more rows",
            "packed product",
            products,
            lambda row: row["bits"] == 4 and row["rows"] > 1 and halves(row),
            four,
        ),
        ("attention, decode", "attention", attentions, lambda row: row["phase"] == "decode", attends),
        ("attention, prefill", "attention", attentions, lambda row: row["phase"] == "prefill", attends),
    ]


def main() -> None:
    """The table."""
    print("| family | card | n | " + " | ".join(SIZES) + " | all | bias | within 2x |")
    print("|---|---|---|" + "---|" * (len(SIZES) + 3))
    for title, family, columns, wanted, predict in kinds():
        for card, (name, _) in CARDS.items():
            record = read(RECORDS / f"{name}.json.gz")
            rows = [row for row in record["rows"][family] if row.get("graph_s") and wanted(row)]
            calls = columns(card, rows)
            error = np.log(predict(calls) / calls.seconds)
            cells = [
                f"{np.median(np.abs(error[chosen])):.0%}" if chosen.any() else "-"
                for chosen in of_size(calls.seconds)
            ]
            print(
                f"| {title} | {card} | {error.size} | " + " | ".join(cells)
                + f" | {np.median(np.abs(error)):.0%} | {np.exp(np.median(error)):.2f}"
                f" | {np.mean(np.abs(error) < np.log(2)):.0%} |"
            )  # fmt: skip


if __name__ == "__main__":
    main()
