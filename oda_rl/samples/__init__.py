"""Tables of samples: what they weigh, and what of them is missing."""
