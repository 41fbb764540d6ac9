"""Tasks: each is examples, features, a model, a loss and a score, and none knows that it is federated."""
