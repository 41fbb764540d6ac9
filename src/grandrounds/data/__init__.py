"""Documents, the formats they come in, and how they are dealt out to sites."""
