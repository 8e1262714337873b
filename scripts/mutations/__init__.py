"""Mistakes that someone might make, each with the tests that must notice it; see ``mutate.py``.

They are listed in ``learning.py``, ``fitting.py``, ``estimators.py``, ``delivering.py`` and
``compiling.py`` of this folder.

To add one, choose a short ``old`` that occurs once in its file, so that edits around it do not
matter, and the narrowest test that is about what is broken: if another test notices by accident,
that is a reason to write one. A change that changes nothing anyone could see is of no use here.
"""

from typing import NamedTuple


class Mutation(NamedTuple):
    """A small mistake on purpose."""

    file: str
    old: str
    """Occurs once in the file."""
    new: str
    tests: tuple[str, ...]
    """Each of them fails under the change."""
    about: str
    """In words, for the table."""


def mistakes_in(file: str, *changes: tuple[str, str, str, str]) -> list[Mutation]:
    """Return changes of one file, each as (words, old, new, test)."""
    return [
        Mutation(file, old, new, (f"tests/{test}",), about) for about, old, new, test in changes
    ]
