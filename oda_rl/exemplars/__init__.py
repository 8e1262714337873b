"""Densities of exemplars, of which there may be infinitely many (INFEX).

``column_generation`` adds exemplars while one would help, ``pricing`` finds it, ``weights`` solves
for the weights of those there are. ``estimators`` are of exemplars anywhere, and among given ones.
"""
