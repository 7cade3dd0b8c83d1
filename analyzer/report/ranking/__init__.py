"""Reporting: the one answer over everything that was asked about, in words and as a table."""
