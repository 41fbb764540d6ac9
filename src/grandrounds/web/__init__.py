"""Pages and a REST interface on the machine's own network: `grandrounds serve` and `grandrounds view`."""
