"""A published model's configuration as an architecture."""
