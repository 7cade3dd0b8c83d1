"""Memory: what buffers a session holds, when each is alive, and whether that fits a device."""
