"""The agent that learns the world and delivers a rule.

``coordinates``, ``laws``, ``rewards`` and ``ends`` are what a world is learned by (``learning``),
``imagination`` is compiled and plays episodes in it, ``search`` looks for a rule there by
``climbing``, ``simplifying`` makes it small, ``selection`` says which one to deliver; ``planning``
does all of that between episodes, and ``engine`` is the agent's state.
"""
