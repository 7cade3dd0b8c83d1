"""Reporting: each chart as a picture, without a browser."""
