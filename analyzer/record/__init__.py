"""The record: every figure of an analysis as plain frozen values, and its JSON."""

from analyzer.record.json import from_dict, from_json, load_report, to_dict, to_json

__all__ = ["from_dict", "from_json", "load_report", "to_dict", "to_json"]
