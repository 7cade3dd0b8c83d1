"""Types and shapes of what operators give, from those that they read; knows nothing of the rest of loading."""
