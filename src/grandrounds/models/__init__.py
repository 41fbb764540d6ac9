"""Plain torch modules, each readable beside its paper."""
