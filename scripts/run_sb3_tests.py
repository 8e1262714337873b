"""Run Stable-Baselines3's own tests with our agents in place of its algorithms.

Run: python scripts/run_sb3_tests.py FOLDER [options of pytest]. FOLDER is ``tests`` in its source
distribution: pip download --no-deps --no-binary :all: stable-baselines3
"""

import inspect
import re
import sys
from collections import Counter
from typing import Any

import pytest
import stable_baselines3

from oda_rl.agents.sb3.algorithms import Codevector, FittedQ, TwoTimescale

STAND_INS = {"A2C": TwoTimescale, "PPO": FittedQ, "DQN": FittedQ,
             "SAC": Codevector, "TD3": Codevector, "DDPG": Codevector}  # fmt: skip
# Tests that mean nothing for agents without networks, whose errors are other ones.
REASONS = {
    "use no algorithm": r"\A(?!.*(model_class|A2C|PPO|DQN|SAC|TD3|DDPG))",
    "are about networks, buffers or schedules": r"uffer|parameters\(|state_dict|\.policy\.|_mlp"
    r"|schedule|Cnn|_net\b|batch_norm|custom_obj|clip_range|n_critics|learning_rate ==|use_sde="
    r"|greedy|extractor|large_model|update_interval",
    "are about other errors": r"raises\(AssertionError|test_\w*warn|bad_zip",
}
# Too few steps for the two-timescale agent; too large images.
KNOWN = r"test_discrete\[env[12]-A2C\]|test_continuous\[A2C\]|test_vec_with_ppo"
left_out: Counter[str] = Counter()


def stand_in(name: str, base: Any) -> type:
    """Return an algorithm that takes Stable-Baselines3's arguments, and heeds those of ours."""
    known = {*inspect.signature(base.__init__).parameters, "gamma"}

    def init(self: Any, policy: Any, env: Any, **given: Any) -> None:
        base.__init__(self, env, **{key: given[key] for key in known & given.keys()})

    return type(name, (base,), {"__init__": init})


def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    for item in list(items):
        text = inspect.getsource(item.function)
        reasons = (name for name, form in REASONS.items() if re.search(form, text, re.DOTALL))
        if reason := next(reasons, None):
            left_out[reason] += 1
            items.remove(item)
        elif re.fullmatch(KNOWN, item.name):
            item.add_marker(pytest.mark.xfail)


if __name__ == "__main__":
    if "--help" in sys.argv:
        print(__doc__)
        sys.exit()
    for name, base in STAND_INS.items():
        setattr(stable_baselines3, name, stand_in(name, base))
    others = "--ignore-glob=/*/test_utils.py"  # which needs Atari games
    options = ["-q", "--tb=line", others, *sys.argv[1:]]
    code = pytest.main(options, [sys.modules["__main__"]])
    print(*(f"left out: {n} that {reason}" for reason, n in left_out.items()), sep="\n")
    sys.exit(code)
