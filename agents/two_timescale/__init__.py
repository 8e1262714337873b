"""The online agent: fast learning of values, slow learning of where their cells lie.

``qlearning`` is the fast timescale and ``cells`` its formulas; ``engine`` is the slow timescale,
``contest`` says which policy is delivered, and ``paper`` is the algorithm of the paper.
"""
