"""Where the components of a mixture over blocks start: at codevectors that annealing has led."""

import numpy as np

from oda_rl._types import FloatArray
from oda_rl.annealing.annealer import Annealer
from oda_rl.annealing.base import FAST
from oda_rl.annealing.levels import Schedule
from oda_rl.annealing.refinement import refine
from oda_rl.distributed.annealing import Course
from oda_rl.distributed.blocks import Blocks
from oda_rl.distributed.extents import Features, InUnits
from oda_rl.distributed.reading import Reader
from oda_rl.distributed.sums import Moments, Sample
from oda_rl.samples import filled, weighted

_ROWS = 1000  # that a round of annealing reads for each codevector


def places(
    blocks: Blocks, features: Features, units: FloatArray, n_components: int, seed: int
) -> tuple[FloatArray, Sample]:
    """Anneal codevectors by sums, and refine them on a sample of the rows.

    Parameters
    ----------
    blocks : Blocks
        NaN where values are missing: to codevectors the features' means are there.
    features : Features
    units : ndarray, shape (d,)
        Of length, of each feature.
    n_components : int
        K ≥ 1.
    seed : int

    Returns
    -------
    codevectors : ndarray, shape (K, d)
        In these units; if there are fewer distinct ones they stand there more than once.
    sample : Sample
        In these units, too, with NaN where values are missing.
    """
    mean = features.means / units
    divergence = InUnits(units, mean)
    moments = Moments(
        np.array([features.rows]), np.array([features.weight]), mean[None], features.low,
        features.high,
    )  # fmt: skip
    course, holed = (
        Course(blocks, Reader(one, None, missing=True), moments, _ROWS, seed)
        for one in (divergence, InUnits(units))
    )
    current = Annealer(_schedule(n_components), divergence, len(mean), np.random.default_rng(seed))
    course.begin(current, None)
    course.anneal(current)
    sample, _ = holed.sample(n_components)
    rows = weighted(filled(sample.points, mean), sample.weights)
    rng = np.random.default_rng(len(rows.points))
    codevectors = refine(rows.points, rows.weights, current.codevectors, rng)
    return codevectors[np.arange(n_components) % len(codevectors)], sample


def _schedule(n_components: int) -> Schedule:
    """Cool until there are so many."""
    return Schedule(
        max_codevectors=n_components,
        min_temperature=0.0,
        cooling=FAST,
        samples_per_codevector=_ROWS,
        max_samples=np.inf,
        target_distortion=0.0,
        target_error=-1.0,
        ends_full=True,
        forgetting=0.0,
    )
