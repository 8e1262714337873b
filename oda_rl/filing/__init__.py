"""Estimators in files: how they are written, and what may be read.

``files`` writes and reads them, ``contents`` checks what was read against the schemas that stand
beside the state itself.
"""
