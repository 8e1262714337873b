"""Models of the world: how observations change by actions, what is received, where episodes end.

A world is learned (``learning``) in ``coordinates``, by ``laws``, ``rewards`` and ``ends``;
``arrays`` are what it is for compiled code, ``imagination``, which plays episodes in it, with the
rules of ``deciding``; ``trajectories`` are those; ``judging`` says
whether it is to be believed, ``changing`` since when it is another, ``noise`` what is left out,
``forecasting`` what will come; :class:`~oda_rl.agents.World` is what people ask.
``logs`` are transitions that were written down elsewhere.
"""
