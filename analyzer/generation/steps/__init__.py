"""The steps of an architecture: their operators, and what they take."""
