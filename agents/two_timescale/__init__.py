"""The online agent: fast Q-learning over a few cells, slow learning of where they lie.

``qlearning`` is the fast timescale and ``cells`` its formulas; ``engine`` is the slow timescale,
``contest`` says which policy is delivered, and ``paper`` is the algorithm of the paper.
"""
