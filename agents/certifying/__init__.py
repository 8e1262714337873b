"""Certificates: from no state of a box does an episode end within so many steps.

``affine`` computes with sets of numbers, ``dynamics`` are worlds in which it can be done,
``reaching`` encloses where a rule leads, and ``certificates`` search the largest box.
"""
