"""Estimators for elsewhere: converters of skl2onnx, and C99 headers.

``import oda_rl.onnx`` registers the former, of which ``onnx_registry`` has the list, ``onnx_graph``
what graphs are made of, and the others a kind of estimator each. ``c_header`` writes the latter,
with the words of ``c_text``, which policies share.
"""

from typing import TYPE_CHECKING

from oda_rl._lazy import offer

if TYPE_CHECKING:
    from oda_rl.exporting.c_header import export_c as export_c

__getattr__, __dir__ = offer(__name__, {"export_c": "c_header"})
