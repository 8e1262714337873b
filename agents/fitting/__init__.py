"""Cells and values that are fitted to trajectories.

``placement`` says where cells lie, ``nearest`` which three a state is nearest to, ``blending`` what
rows add to those, ``placed`` what stays from fit to fit; ``advantages`` fits values in two parts,
``one_piece`` in one, both by ``regression``; ``delivery`` makes a policy of them.
``action_codevectors`` are where actions are continuous.
"""
