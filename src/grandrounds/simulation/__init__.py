"""A federation on one machine: sites in this process, in several workers, or on a Ray cluster."""
