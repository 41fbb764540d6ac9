"""What the server holds before round 1, made the same way by simulation, coordinator, site and dry run."""
