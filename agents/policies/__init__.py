"""Policies, which agents deliver: arrays that decide, explain themselves and export to C.

``contract`` says what a policy is, and ``cells``, ``joint`` and ``rules`` are the kinds there are;
``explaining`` and ``export`` take any.
"""

from typing import TYPE_CHECKING

from oda_rl._lazy import offer

if TYPE_CHECKING:
    from oda_rl.agents.policies.cells import CodevectorPolicy as CodevectorPolicy
    from oda_rl.agents.policies.cells import TablePolicy as TablePolicy

__getattr__, __dir__ = offer(__name__, __file__)
