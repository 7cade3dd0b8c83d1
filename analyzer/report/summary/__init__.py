"""Reporting: the answer in words and figures, as every format for people shows it first."""
