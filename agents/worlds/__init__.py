"""Models of the world: what an action changes, what is received, and where episodes terminate.

A world is learned (``learning``) in ``coordinates``, by ``laws`` and ``rewards``. Compiled
``simulation`` plays episodes in it, which are ``trajectories``. ``quality`` says whether it is
trusted, and whether the world has changed since. :class:`~oda_rl.agents.World` is the public class,
``logs`` are transitions that were written down elsewhere.
"""
