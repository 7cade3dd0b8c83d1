"""``fleet.json`` <-> ``Fleet``, as ``json_writer`` and ``json_reader`` do for the record of one model."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

import msgspec

from analyzer import __version__
from analyzer.errors import RecordError
from analyzer.record.fleet import FLEET_SCHEMA_VERSION, Fleet
from analyzer.record.json_writer import plain
from analyzer.record.values import RepeatedKeyError, first_unfit, without_repeats
from analyzer.text import json_escaped

FLEET_FILE = "fleet.json"
# 10,000 models on 70 devices take some 400 MB.
_MOST_BYTES = 1_000_000_000
_HINT = "A fleet's record is the fleet.json that `analyze fleet` writes."


def fleet_to_json(fleet: Fleet) -> str:
    """The fleet as JSON; the same fleet gives the same text.

    A cell's keys without a value are left out: there are many cells, and null is most of what stands in them.
    """
    values = plain(fleet)
    for model in values["models"]:
        model["cells"] = [
            {key: value for key, value in cell.items() if value is not None and value != ""}
            for cell in model["cells"]
        ]
    head = {"schema_version": values.pop("schema_version"), "tool": values.pop("tool")}
    text = json.dumps({**head, **values}, indent=1, ensure_ascii=False, allow_nan=False)
    return json_escaped(text) + "\n"


def load_fleet(path: str | os.PathLike[str]) -> Fleet:
    """Reads a saved fleet: ``fleet.json``, or the folder that holds it.

    Raises:
        RecordError: There is none, or it cannot be read; the message says where.
    """
    file_name = os.path.join(path, FLEET_FILE) if os.path.isdir(path) else os.fspath(path)
    try:
        with open(file_name, "rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise RecordError(f"{file_name} is larger than {_MOST_BYTES // 10**6} MB.")
        values = json.loads(content.decode("utf-8"), object_pairs_hook=without_repeats)
    except FileNotFoundError as error:
        raise RecordError(f"No such file: {file_name}.", hint=_HINT) from error
    except RepeatedKeyError as error:
        raise _damaged(file_name, repr(error.key), "the key stands twice in one object") from error
    except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, or nested beyond any fleet
        raise RecordError(f"{file_name} is no valid JSON: {error}.", hint=_HINT) from error
    except OSError as error:
        raise RecordError(f"{file_name} cannot be read: {error.strerror or error}.") from error
    return fleet_from_dict(values, name=file_name)


def holds_fleet(path: str | os.PathLike[str]) -> bool:
    """Whether a file holds a fleet; False as well where it cannot be read, which its reader says."""
    try:
        with open(path, "rb") as file:
            content = file.read(_MOST_BYTES + 1)
        # A model's record is large, and is not read twice for a word that it does not hold.
        return b'"models"' in content and is_fleet(json.loads(content))
    except (OSError, ValueError, RecursionError):
        return False


def is_fleet(values: object) -> bool:
    """Whether what a JSON file holds is a fleet and not one model's record."""
    return isinstance(values, Mapping) and "models" in values and "operators" not in values


def fleet_from_dict(values: Mapping[str, object], *, name: str) -> Fleet:
    """The fleet that plain values hold; keys that this version does not know are left aside.

    Raises:
        RecordError: It is no fleet, of a newer schema, or damaged.
    """
    version = values.get("schema_version") if is_fleet(values) else None
    if type(version) is not int or version < 1:
        raise RecordError(f"{name} is no fleet's record.", hint=_HINT)
    if version > FLEET_SCHEMA_VERSION:
        raise RecordError(
            f"{name} has schema {version}; analyze {__version__} reads up to {FLEET_SCHEMA_VERSION}.",
            hint="Read it with the version that wrote it.",
        )
    unfit = first_unfit(values)
    if unfit is not None:
        raise _damaged(name, unfit.place, unfit.reason)
    try:
        fleet = msgspec.convert(dict(values), Fleet)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at `$")
        raise _damaged(name, place.strip("`."), reason[:1].lower() + reason[1:]) from error
    _check_references(fleet, name)
    return fleet


def _check_references(fleet: Fleet, name: str) -> None:
    """Refuses indices of cells that are not there, and names of models that nobody has."""
    cells = {}
    for position, model in enumerate(fleet.models):
        if model.name in cells:
            raise _damaged(name, f"models[{position}].name", "it stands twice")
        cells[model.name] = len(model.cells)
        for key in ("best", "cheapest"):
            index = getattr(model, key)
            if index is not None and index >= len(model.cells):
                raise _damaged(name, f"models[{position}].{key}", "there is no such cell")
    packed = fleet.consolidation.instances if fleet.consolidation else ()
    named = [(move.model, move.cell) for move in fleet.moves]
    named += [(one.model, one.cell) for machine in packed for one in machine.models]
    for model_name, cell in named:
        if cell >= cells.get(model_name, 0):
            raise _damaged(name, f"the cell of {model_name!r}", "there is no such model or cell")


def _damaged(name: str, place: str, reason: str) -> RecordError:
    fault = " ".join(f"{place or 'the top'}: {reason}".split())[:200]
    return RecordError(
        f"{name} is damaged at {fault}.", hint="It was cut short or edited by hand: run it anew."
    )
