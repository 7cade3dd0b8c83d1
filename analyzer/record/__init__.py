"""The record: an ``Analysis`` as JSON that is read back as the same ``Analysis``."""

from analyzer.record.encoding import from_dict, from_json, load_report, to_dict, to_json

__all__ = ["from_dict", "from_json", "load_report", "to_dict", "to_json"]
