"""A federation on one machine: sites in this process or in several workers."""
