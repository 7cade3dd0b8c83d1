"""Many models on many devices: a graph of tasks over processes or a Ray cluster, one table, one page."""
