"""The agent that learns the world and delivers a rule.

``planner`` learns the world between episodes and searches for a rule in it; ``tables`` plans where
states are discrete. ``experience`` holds steps and episodes, ``engine`` the agent's state. Where
the world is not trusted, ``fallback`` and ``climbing`` go on in the real environment.
"""
