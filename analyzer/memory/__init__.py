"""Memory of a session, and whether a device has room for it."""
