"""The largest box from which no episode ends within so many steps."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oda_rl._threads import one_thread
from oda_rl._types import BoolArray, FloatArray
from oda_rl.agents.certifying.dynamics import LearnedLaw, Moving
from oda_rl.agents.certifying.reaching import Reach, frames
from oda_rl.agents.policies.export_tables import decisive
from oda_rl.agents.policies.rules import RulePolicy
from oda_rl.agents.training.player import checked_count
from oda_rl.agents.worlds.judging import held_out
from oda_rl.agents.worlds.learning import CodedSteps, Learned

_HALVINGS = 7
_SETS = 400
_PARTS = 0.25  # of the sets, that a box is divided into to begin with


@dataclass(frozen=True, eq=False)
class Certificate:
    """What has been proved of a rule in a world; ``print`` it."""

    low: FloatArray
    """Of the box in which episodes begin, shape (d,)."""
    high: FloatArray
    steps: int
    """Within which none ends."""
    share: float
    """Of the box that was asked for, along each side; 0 if nothing has been proved."""
    world: str
    """In which world, and with what error."""
    error: FloatArray
    """How far each component may be off after each step, shape (d,)."""
    names: tuple[str, ...]
    """Of the components."""
    policy: dict[str, npt.NDArray[Any]]
    """Arrays of the rule."""

    @property
    def lines(self) -> list[str]:
        """What it says."""
        if self.share == 0.0:
            return [
                f"Not certified: from no box that was tried does it stay up {self.steps} steps."
            ]
        ends = zip(self.names, self.low.tolist(), self.high.tolist(), strict=True)
        return [
            f"Certified: no episode that begins in this box ends within {self.steps} steps",
            *(f"    {name} from {a:.6g} to {b:.6g}" for name, a, b in ends),
            f"in {self.world}.",
            "It is a proof about that world, and not about any other.",
        ]

    @property
    def document(self) -> dict[str, Any]:
        """The same for JSON."""
        return {
            "low": self.low.tolist(), "high": self.high.tolist(), "steps": self.steps,
            "share": self.share, "world": self.world, "error": self.error.tolist(),
        }  # fmt: skip

    def __str__(self) -> str:
        return "\n".join(self.lines)


@one_thread()
def certify(
    policy: RulePolicy,
    worlds: Sequence[Moving],
    low: FloatArray,
    high: FloatArray,
    steps: int,
    names: Sequence[str] | None = None,
    sets: int = _SETS,
) -> Certificate:
    """Find the largest box, scaled about its centre, from which no episode ends.

    Sets of states are followed in affine arithmetic; what the rule decides divides them. The proof
    holds in each of the worlds, with an error of each step, up to the rounding that is allowed for.

    Parameters
    ----------
    policy : RulePolicy
    worlds : sequence of Moving
        As :class:`~oda_rl.agents.certifying.dynamics.CartPole`.
    low, high : array_like, shape (d,)
        The box that is asked for.
    steps : int
    names : sequence of str, optional
        Of the components.
    sets : int
        That are followed at once: more prove more, and take longer.

    Raises
    ------
    ValueError
        For bounds that are not finite or not in order, or numbers below 1.

    Examples
    --------
    >>> from oda_rl.agents.certifying.dynamics import CartPole
    >>> scores = np.array([[0.0] * 5, [0.0, 0.0, 0.0, 6.0, 1.0]])
    >>> rule = RulePolicy(scores, np.eye(2)[:, :, None], np.zeros((2, 4)))
    >>> found = certify(rule, [CartPole()], [-0.05] * 4, [0.05] * 4, steps=50, sets=50)
    >>> print(found.lines[0])
    Certified: no episode that begins in this box ends within 50 steps
    """
    first, last = (np.array(end, dtype=np.float64) for end in (low, high))
    d = policy.scores.shape[1] - 1
    if first.shape != (d,) or last.shape != (d,) or not (first <= last).all():
        raise ValueError(f"low is {low!r} and high {high!r}: they must be {d} numbers, in order")
    if not np.isfinite([first, last]).all():
        raise ValueError(f"low is {low!r} and high {high!r}: they must be finite")
    count, most = checked_count("steps", steps), checked_count("sets", sets)
    output = policy.all_outputs
    pieces = [(one.rows, output[one.cell]) for one in policy.pieces]
    centre, half = 0.5 * (first + last), 0.5 * (last - first)
    scale = np.where(half > 0.0, half, 1.0)
    follow = [Reach(one, pieces, frames(one, pieces, centre, scale)) for one in worlds]

    def proved(share: float) -> bool:
        box = centre - share * half, centre + share * half
        parts = max(int(_PARTS * most), 1)
        return all(
            one.steps_without_end(one.start(*box, parts), count, most) == count for one in follow
        )

    share = _greatest(proved)
    return Certificate(
        centre - share * half, centre + share * half, count, share, worlds[0].error_text,
        np.max([one.error for one in worlds], axis=0),
        tuple(names or (f"observation[{j}]" for j in range(d))), decisive(policy),
    )  # fmt: skip


@one_thread()
def certify_learned(
    policy: RulePolicy,
    learned: Learned,
    seen: CodedSteps,
    first: BoolArray | None,
    box: tuple[FloatArray, FloatArray],
    steps: int,
    names: Sequence[str],
    sets: int = _SETS,
) -> Certificate:
    """Do what :func:`certify` does, in each law of a learned world.

    The error of a step is the largest of all held-out residuals, of laws that were fitted without
    the steps that they are asked about.

    Parameters
    ----------
    policy : RulePolicy
    learned : Learned
    seen : CodedSteps
        What it was learned from.
    first : ndarray of bool, shape (n,), optional
        Whether an episode began with the step.
    box : (low, high)
    steps : int
    names : sequence of str
    sets : int
    """
    expected = held_out(learned, seen, first, np.random.default_rng(0))
    on = ~seen.ended
    error = np.abs(seen.after - expected)[on].max(axis=0)
    size = ", ".join(f"{value:.3g}" for value in error)
    text = (
        f"each of the {len(learned.arrays.laws)} learned laws, if no step is off by more than "
        f"({size}), the largest of {int(on.sum())} held-out residuals"
    )
    worlds = [LearnedLaw(learned.arrays, e, error, text) for e in range(len(learned.arrays.laws))]
    return certify(policy, worlds, *box, steps, names, sets)


def _greatest(proved: Callable[[float], bool]) -> float:
    """Return the greatest share that is proved, to within a hundredth of it; 0 if none is."""
    if proved(1.0):
        return 1.0
    share, beyond = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = 0.5 * beyond if share == 0.0 else math.sqrt(share * beyond)
        if proved(middle):
            share = middle
        else:
            beyond = middle
    return share
