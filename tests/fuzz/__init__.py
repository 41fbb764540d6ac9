"""Fuzzing of whatever a stranger may send, guided by coverage: `make fuzz`."""
