"""The command ``oda-rl``: its options, what it prints, and the folders that it writes."""
