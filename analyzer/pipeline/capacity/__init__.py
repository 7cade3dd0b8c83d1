"""Traffic and a limit -> which instances serve a model: the question, how long each takes, how many are needed."""
