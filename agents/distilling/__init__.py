"""Any policy as a rule of a few cells.

``teachers`` say what mistakes cost, ``fit`` finds cells in which actions cost little, ``races``
tell rules apart on common starts, and ``distil`` goes all the way: ``imitation``, then it climbs,
prunes and rounds, in an environment (``playing``) that counts every step.
"""
