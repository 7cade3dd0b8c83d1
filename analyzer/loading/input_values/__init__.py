"""Loading: what inputs hold, and what of a graph follows from it: sizes, lengths of sequences and of texts."""
