"""Any policy as a rule of a few cells.

``distil`` goes all the way: ``imitation`` of teachers, ``search`` by real episodes,
``simplifying``. ``coding`` turns rules into vectors and back, ``playing`` counts every step.
"""
