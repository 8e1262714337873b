"""The agent that learns the world and delivers a rule.

``search`` looks for a rule in a learned world (``oda_rl.agents.worlds``), by ``grading`` for one of
fewer numbers where actions are degrees of one quantity; ``selection`` says which one to deliver;
``planning`` does that between episodes. ``climb_for_real`` goes on where the world is not to be
believed. Where states are numbered, ``tables`` plan over what ``counting`` has
counted; ``choosing`` finds out. ``engine`` is the agent's state.
"""
