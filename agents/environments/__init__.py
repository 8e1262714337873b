"""Environments as agents see them: made from an id, adapted to a Box and numbered actions.

``spaces`` describes what an environment wants and gives, ``adaptation`` wraps those with other
spaces, ``making`` makes them, ``origins`` says what they are made of and makes them anew, and
``validation`` says what is wrong with a value.
"""

from typing import TYPE_CHECKING

from oda_rl._lazy import offer

if TYPE_CHECKING:
    from oda_rl.agents.environments.making import make_env as make_env
    from oda_rl.agents.environments.making import spec_of as spec_of
    from oda_rl.agents.environments.origins import separate_env as separate_env
    from oda_rl.agents.environments.spaces import Interface as Interface

__getattr__, __dir__ = offer(
    __name__,
    {
        "make_env": "making",
        "separate_env": "origins",
        "spec_of": "making",
        "Interface": "spaces",
    },
)
