"""Documents, the formats they come in, and how they are partitioned over sites."""
