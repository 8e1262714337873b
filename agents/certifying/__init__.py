"""Certificates: no episode that begins in a box ends within a number of steps.

``dynamics`` computes with sets of states, ``certificates`` searches for the largest box.
"""
