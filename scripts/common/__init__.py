"""Shared by the scripts: experiments, data, tasks and tables."""
