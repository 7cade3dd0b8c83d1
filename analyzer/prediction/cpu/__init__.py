"""Times of kernels on a CPU: what the device sustains, and a form for each kind of kernel."""
