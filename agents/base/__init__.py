"""The base of all agents: training, callbacks, checkpoints, files."""
