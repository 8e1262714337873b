"""Reinforcement learning you can read: a handful of cells, and a Q-table over them.

Everything is loaded when it is first used: ``import oda_rl`` alone imports nothing else.

>>> from oda_rl.agents import TwoTimescaleAgent
>>> agent = TwoTimescaleAgent("CartPole-v1", seed=0).learn(2_000)
>>> agent.n_cells <= 8
True
"""

from pathlib import Path as _Path

__version__ = "0.1.0"

# In a source checkout agents/ and envs/ lie beside this folder; installed, they lie inside it.
_beside = _Path(__file__).parent.parent
if not (_Path(__file__).parent / "agents").is_dir() and (_beside / "pyproject.toml").is_file():
    __path__.append(str(_beside))
