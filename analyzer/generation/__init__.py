"""Generation: what a language model's prefill and decode steps are, keep and take, on one device or several."""
