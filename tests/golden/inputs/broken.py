"""A model of a fleet that fails."""


def build_model() -> None:
    """Fail, as a user's own code may."""
    raise RuntimeError("the weights are not there")
