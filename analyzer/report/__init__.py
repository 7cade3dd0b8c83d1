"""Reporting: an ``Analysis`` in, a string out; one module a format, imported when it is asked for."""

from analyzer.record.formats import FORMATS, Format, find, render

__all__ = ["FORMATS", "Format", "find", "render"]
