"""Loading, step one: the user's Python file or module becomes a model object with example inputs."""
