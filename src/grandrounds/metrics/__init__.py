"""Scores of the field, from counts that sites may add up."""
