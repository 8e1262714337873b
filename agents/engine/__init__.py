"""What runs while an agent learns: state, lanes, memory, the loop, episodes and contests."""
