"""Certificates: from no state of a box does an episode end within so many steps.

``dynamics`` computes with sets of states, ``certificates`` searches the largest box.
"""
