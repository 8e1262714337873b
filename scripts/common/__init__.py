"""What scripts share: how experiments are made, their data, tasks and tables."""
