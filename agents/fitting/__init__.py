"""Cells and values that are fitted to trajectories.

``cells`` places cells of states and of actions; ``advantages`` fits values in two partitions,
``regression`` in one.
"""
