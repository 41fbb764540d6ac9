"""A config: TOML with `key=value` overrides, checked before anything is computed."""
