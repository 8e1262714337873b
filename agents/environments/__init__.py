"""Environments as agents see them: observations as vectors, numbered actions."""
