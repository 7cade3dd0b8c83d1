"""Loading: what the user has becomes a Graph."""
