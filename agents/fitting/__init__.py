"""Cells and values that are fitted to trajectories.

``cells`` says where cells lie and which three a state is near, ``placed`` what stays from fit to
fit; ``advantages`` fits values in two parts, ``joint`` in one, both by ``regression``.
``action_codevectors`` are where actions are continuous.
"""
