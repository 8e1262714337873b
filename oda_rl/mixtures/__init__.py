"""Gaussian mixtures that learn from a stream, by gradients (SGD-GMM) or by stochastic EM."""
