"""Gaussian mixtures that learn from a stream, by gradients (SGD-GMM) or by stochastic EM.

``kernels`` are what a mixture consists of and the compiled steps, which ``learning`` runs over a
stream; ``base`` is what the estimators share, ``sgd`` and ``stochastic_em`` are these.
"""
