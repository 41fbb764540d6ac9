"""A federation between hosts: terms, keys, handshake, messages, and Flower, which carries them."""
