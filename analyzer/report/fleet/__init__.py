"""Reporting: a fleet: its page, its tables as CSV and Parquet, its answer on a terminal and in a pull request."""
