"""A run: its folder, checkpoints, round loop, and where its figures come from."""
