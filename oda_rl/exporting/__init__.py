"""Estimators for other programs: ONNX converters for skl2onnx (``onnx``), and C99 headers."""

from typing import TYPE_CHECKING

from oda_rl._lazy import offer

if TYPE_CHECKING:
    from oda_rl.exporting.c_header import export_c as export_c

__getattr__, __dir__ = offer(__name__, __file__)
