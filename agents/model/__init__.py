"""The agent that learns the world and delivers a rule.

``search`` looks for a rule in a learned world (``oda_rl.agents.worlds``) by ``climbing``,
``simplifying`` makes it small, ``selection`` says which one to deliver; ``planning`` does all of
that between episodes. Where states are numbered, ``tables`` plan over what ``counting`` has
counted; ``choosing`` finds out. ``engine`` is the agent's state.
"""
