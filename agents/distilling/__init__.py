"""Any policy as a rule of a few cells.

``teachers`` say what mistakes cost, by ``evaluating`` if need be, ``fit`` finds cells in which
actions cost little, ``races`` tell rules apart on common starts, and ``distil`` goes all the way:
``imitation``, ``ascent`` by ``climbing``, ``pruning`` by ``simplifying``, in an environment
(``playing``) that counts every step; ``dreaming`` climbs in a learned world. ``simplifiable`` are
agents that offer that.
"""
