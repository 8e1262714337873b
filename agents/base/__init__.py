"""What every agent shares: training that is watched, stopped, saved and resumed."""
