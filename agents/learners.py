"""Arrays of a partition's learner, for partitions of one's own."""

from oda_rl.agents.partitions.schedule import Learner as Learner
from oda_rl.agents.partitions.schedule import interpreted_learner as interpreted_learner
