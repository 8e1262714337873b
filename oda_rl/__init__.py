"""Reinforcement learning you can read: a handful of cells, and a Q-table over them.

Everything is loaded when it is first used: ``import oda_rl`` alone imports nothing else.

>>> from oda_rl.agents import TwoTimescaleAgent
>>> agent = TwoTimescaleAgent("CartPole-v1", seed=0).learn(2_000)
>>> agent.n_cells <= 8
True
"""

from importlib import import_module as _import_module
from importlib.util import spec_from_file_location as _spec_from_file_location
from pathlib import Path as _Path
from sys import meta_path as _meta_path
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from oda_rl.annealing.classifier import ODAClassifier
    from oda_rl.annealing.clusterer import ODAClusterer
    from oda_rl.annealing.regressor import ODARegressor
    from oda_rl.densities import DensityClassifier, DensityOutlierDetector
    from oda_rl.distributed.estimators import DistributedODAClassifier, DistributedODAClusterer
    from oda_rl.distributed.mixture import DistributedGaussianMixture
    from oda_rl.exemplars.candidates import ConvexClustering, KernelVectorQuantization
    from oda_rl.exemplars.infex import INFEX
    from oda_rl.files.schema import InvalidFileError
    from oda_rl.mixtures.sgd import SGDGaussianMixture
    from oda_rl.mixtures.stochastic_em import StochasticEMGaussianMixture
    from oda_rl.quantization.batch_annealing import BatchDeterministicAnnealing
    from oda_rl.quantization.som import SOM
    from oda_rl.quantization.vq import LVQ, StochasticVQ
    from oda_rl.trees.estimators import ODATreeClassifier, ODATreeClusterer, ODATreeRegressor

__version__ = "0.1.0"

# In a source checkout agents/ and envs/ lie beside this folder; installed, they lie inside it.
_beside = _Path(__file__).parent.parent
if not (_Path(__file__).parent / "agents").is_dir() and (_beside / "pyproject.toml").is_file():

    class _Checkout:
        @staticmethod
        def find_spec(name: str, path: _Any = None, target: _Any = None) -> _Any:
            if name not in ("oda_rl.agents", "oda_rl.envs"):
                return None
            folder = _beside / name.removeprefix("oda_rl.")
            return _spec_from_file_location(
                name, folder / "__init__.py", submodule_search_locations=[str(folder)]
            )

    _meta_path.insert(0, _Checkout)


_LAZY = {
    "BatchDeterministicAnnealing": "oda_rl.quantization.batch_annealing",
    "ConvexClustering": "oda_rl.exemplars.candidates",
    "DensityClassifier": "oda_rl.densities",
    "DensityOutlierDetector": "oda_rl.densities",
    "DistributedGaussianMixture": "oda_rl.distributed.mixture",
    "DistributedODAClassifier": "oda_rl.distributed.estimators",
    "DistributedODAClusterer": "oda_rl.distributed.estimators",
    "INFEX": "oda_rl.exemplars.infex",
    "InvalidFileError": "oda_rl.files.schema",
    "KernelVectorQuantization": "oda_rl.exemplars.candidates",
    "LVQ": "oda_rl.quantization.vq",
    "ODAClassifier": "oda_rl.annealing.classifier",
    "ODAClusterer": "oda_rl.annealing.clusterer",
    "ODARegressor": "oda_rl.annealing.regressor",
    "ODATreeClassifier": "oda_rl.trees.estimators",
    "ODATreeClusterer": "oda_rl.trees.estimators",
    "ODATreeRegressor": "oda_rl.trees.estimators",
    "SGDGaussianMixture": "oda_rl.mixtures.sgd",
    "SOM": "oda_rl.quantization.som",
    "StochasticEMGaussianMixture": "oda_rl.mixtures.stochastic_em",
    "StochasticVQ": "oda_rl.quantization.vq",
}

__all__ = [
    "INFEX",
    "LVQ",
    "SOM",
    "BatchDeterministicAnnealing",
    "ConvexClustering",
    "DensityClassifier",
    "DensityOutlierDetector",
    "DistributedGaussianMixture",
    "DistributedODAClassifier",
    "DistributedODAClusterer",
    "InvalidFileError",
    "KernelVectorQuantization",
    "ODAClassifier",
    "ODAClusterer",
    "ODARegressor",
    "ODATreeClassifier",
    "ODATreeClusterer",
    "ODATreeRegressor",
    "SGDGaussianMixture",
    "StochasticEMGaussianMixture",
    "StochasticVQ",
]


def __getattr__(name: str) -> _Any:
    """Import an estimator when it is first asked for."""
    if name not in _LAZY:
        raise AttributeError(f"module 'oda_rl' has no attribute {name!r}")
    return getattr(_import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
