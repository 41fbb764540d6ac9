"""One file an algorithm; `grandrounds.registry` knows them by name."""
