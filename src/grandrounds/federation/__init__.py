"""The federation: what algorithms see, what travels between server and sites, and where sites run."""
