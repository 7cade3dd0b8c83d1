"""Two or more analyses side by side, in every format."""
