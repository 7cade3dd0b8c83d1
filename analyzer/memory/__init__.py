"""What a session holds, and whether that fits."""
