"""Cells and values that are fitted to trajectories.

``cells`` places cells, ``placed`` keeps them from fit to fit; ``advantages`` fits values in two
parts, ``joint`` in one, both by ``regression``; ``action_codevectors``: continuous actions.
"""
