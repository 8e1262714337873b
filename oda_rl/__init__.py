"""Reinforcement learning you can read: cells, and the values of actions over them.

``import oda_rl`` imports nothing else: everything is loaded when it is first used.

>>> from oda_rl.agents import TwoTimescaleAgent
>>> agent = TwoTimescaleAgent("CartPole-v1", seed=0).learn(2_000)
>>> agent.n_cells <= 256
True
"""

from importlib.util import spec_from_file_location as _spec_from_file_location
from pathlib import Path as _Path
from sys import meta_path as _meta_path
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from oda_rl._lazy import offer as _offer

if _TYPE_CHECKING:
    from oda_rl.annealing.batch_annealing import (
        BatchDeterministicAnnealing as BatchDeterministicAnnealing,
    )
    from oda_rl.annealing.classifier import ODAClassifier as ODAClassifier
    from oda_rl.annealing.clusterer import ODAClusterer as ODAClusterer
    from oda_rl.annealing.regressor import ODARegressor as ODARegressor
    from oda_rl.densities import DensityClassifier as DensityClassifier
    from oda_rl.densities import DensityOutlierDetector as DensityOutlierDetector
    from oda_rl.distributed.estimators import DistributedODAClassifier as DistributedODAClassifier
    from oda_rl.distributed.estimators import DistributedODAClusterer as DistributedODAClusterer
    from oda_rl.distributed.mixture import DistributedGaussianMixture as DistributedGaussianMixture
    from oda_rl.exemplars.estimators import INFEX as INFEX
    from oda_rl.exemplars.estimators import ConvexClustering as ConvexClustering
    from oda_rl.exemplars.estimators import KernelVectorQuantization as KernelVectorQuantization
    from oda_rl.files.schema import InvalidFileError as InvalidFileError
    from oda_rl.mixtures.sgd import SGDGaussianMixture as SGDGaussianMixture
    from oda_rl.mixtures.stochastic_em import (
        StochasticEMGaussianMixture as StochasticEMGaussianMixture,
    )
    from oda_rl.quantization.som import SOM as SOM
    from oda_rl.quantization.vq import LVQ as LVQ
    from oda_rl.quantization.vq import StochasticVQ as StochasticVQ
    from oda_rl.trees.estimators import ODATreeClassifier as ODATreeClassifier
    from oda_rl.trees.estimators import ODATreeClusterer as ODATreeClusterer
    from oda_rl.trees.estimators import ODATreeRegressor as ODATreeRegressor

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

__getattr__, __dir__ = _offer(__name__, __file__)
__all__ = __dir__()
