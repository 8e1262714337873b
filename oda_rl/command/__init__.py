"""The command ``oda-rl``."""
