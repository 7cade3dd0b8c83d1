"""A record decided anew without its model: what is written for that, read back, scaled and decided."""
