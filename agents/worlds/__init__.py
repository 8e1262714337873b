"""Models of the world: what an action changes, which reward it brings, where episodes terminate.

A world is learned (``learning``) in ``coordinates``, by ``laws``. Compiled ``simulation`` plays
episodes in it. ``quality`` says whether it is trusted, and whether the world has changed since.
:class:`~oda_rl.agents.World` is the public class.
"""
