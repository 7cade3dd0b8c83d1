"""The record: an ``Analysis`` as JSON that is read back as the same ``Analysis``."""

from analyzer.record.json_reader import from_dict, from_json, load_report
from analyzer.record.json_writer import to_dict, to_json

__all__ = ["from_dict", "from_json", "load_report", "to_dict", "to_json"]
