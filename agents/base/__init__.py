"""Training that is watched, stopped, saved and resumed: the base of all agents."""
