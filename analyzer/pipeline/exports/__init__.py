"""Exports at further batches, where one export does not hold them all."""
