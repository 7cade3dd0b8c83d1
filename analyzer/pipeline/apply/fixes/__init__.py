"""Fixes: a model file to another that does the same in less time, predicted before and compared after."""
