"""The part of SARIF 2.1.0 that a log of ours may use, as a JSON schema.

Written from the OASIS standard (errata 01, sections 3.13 to 3.58): names, types, what is required, and what
values are allowed. Everything that is not listed is refused, so a misspelt property fails.
"""

from __future__ import annotations

from typing import Any


def _object(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": {**properties, "properties": {"type": "object"}},
    }


def _list(items: Any, unique: bool = False) -> dict[str, Any]:
    return {"type": "array", "items": items, "uniqueItems": unique}


_TEXT = {"type": "string"}
_INDEX = {"type": "integer", "minimum": -1}
_LEVEL = {"enum": ["none", "note", "warning", "error"]}
_MULTIFORMAT = _object(("text",), text=_TEXT, markdown=_TEXT)
_MESSAGE = {
    **_object(text=_TEXT, markdown=_TEXT, id=_TEXT, arguments=_list(_TEXT)),
    "anyOf": [{"required": ["text"]}, {"required": ["id"]}],
}
_ARTIFACT = _object(uri={"type": "string", "format": "uri-reference"}, uriBaseId=_TEXT, index=_INDEX)
_REGION = _object(
    startLine={"type": "integer", "minimum": 1},
    startColumn={"type": "integer", "minimum": 1},
    endLine={"type": "integer", "minimum": 1},
    endColumn={"type": "integer", "minimum": 1},
    snippet=_object(text=_TEXT),
)
_LOCATION = _object(
    id=_INDEX,
    physicalLocation={
        **_object(artifactLocation=_ARTIFACT, region=_REGION),
        "anyOf": [{"required": ["artifactLocation"]}],
    },
    logicalLocations=_list(
        _object(name=_TEXT, index=_INDEX, fullyQualifiedName=_TEXT, decoratedName=_TEXT, kind=_TEXT),
        unique=True,
    ),
    message=_MESSAGE,
)
_RULE = _object(
    ("id",),
    id=_TEXT,
    name=_TEXT,
    shortDescription=_MULTIFORMAT,
    fullDescription=_MULTIFORMAT,
    help=_MULTIFORMAT,
    helpUri={"type": "string", "format": "uri"},
    defaultConfiguration=_object(enabled={"type": "boolean"}, level=_LEVEL, rank={"type": "number"}),
)
_RESULT = _object(
    ("message",),
    ruleId=_TEXT,
    ruleIndex=_INDEX,
    kind={"enum": ["notApplicable", "pass", "fail", "review", "open", "informational"]},
    level=_LEVEL,
    message=_MESSAGE,
    locations=_list(_LOCATION),
    partialFingerprints={"type": "object", "additionalProperties": _TEXT},
    suppressions=_list(
        _object(
            ("kind",),
            kind={"enum": ["inSource", "external"]},
            status={"enum": ["accepted", "underReview", "rejected"]},
            justification=_TEXT,
        ),
        unique=True,
    ),
    baselineState={"enum": ["new", "unchanged", "updated", "absent"]},
)
SARIF = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    **_object(
        ("version", "runs"),
        version={"enum": ["2.1.0"]},
        runs=_list(
            _object(
                ("tool", "results"),
                tool=_object(
                    ("driver",),
                    driver=_object(
                        ("name",),
                        name=_TEXT,
                        version=_TEXT,
                        semanticVersion=_TEXT,
                        informationUri={"type": "string", "format": "uri"},
                        rules=_list(_RULE, unique=True),
                    ),
                ),
                automationDetails=_object(id=_TEXT),
                invocations=_list(_object(("executionSuccessful",), executionSuccessful={"type": "boolean"})),
                results=_list(_RESULT),
            )
        ),
        **{"$schema": {"type": "string", "format": "uri"}},
    ),
}
