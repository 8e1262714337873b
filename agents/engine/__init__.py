"""What all agents share: memory, lanes, the training loops, episodes and their history."""
