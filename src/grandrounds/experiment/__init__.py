"""An experiment: a config, the federation that it describes, the round loop, and the folder that holds the run."""
