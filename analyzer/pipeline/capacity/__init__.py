"""Traffic and a limit -> which instances serve a model, how many of them, batched how, at what price."""
