"""Reporting: a fleet: its page, its table as CSV and Parquet, its answer on a terminal and in Markdown."""
