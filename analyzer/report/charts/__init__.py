"""Reporting: the charts of the page, each a specification for Vega-Lite or Vega with its data and words."""
