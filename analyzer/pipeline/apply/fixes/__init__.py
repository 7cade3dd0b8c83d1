"""Fixes: a model file to another model file that does the same in less time, predicted before and compared after."""
