"""The fitted agent: cells and values fitted to all stored transitions.

``engine`` says when to fit (:mod:`oda_rl.agents.fitting` is how) and what is played,
``exploration`` how much is explored; ``steps`` chooses actions and remembers their outcomes,
``changes`` says which policy is the best; ``codevectors`` is the agent with continuous actions.
"""
