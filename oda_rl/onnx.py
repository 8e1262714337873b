"""Importing this makes ``skl2onnx.to_onnx`` convert every estimator of this package that predicts.

>>> import numpy as np
>>> import oda_rl.onnx
>>> from skl2onnx import to_onnx
>>> from oda_rl import ODAClassifier
>>> model = ODAClassifier(2, random_state=0).fit([[0.0], [0.1], [4.0], [4.1]], [0, 0, 1, 1])
>>> graph = to_onnx(model, np.zeros((1, 1), dtype=np.float32), options={"zipmap": False})
>>> len(graph.SerializeToString()) < 2_000
True

It needs skl2onnx: ``pip install "oda-rl[onnx]"``.
"""

from oda_rl.exporting.onnx import register as register

register()
