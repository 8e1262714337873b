"""What an agent is before it has a rule: training that is watched, stopped, saved and resumed."""
