"""The agents as algorithms of Stable-Baselines3, for its callbacks, loggers and environments."""

from oda_rl.agents.fitted.agent import FittedQAgent
from oda_rl.agents.model.agent import ModelAgent
from oda_rl.agents.sb3.base import Algorithm
from oda_rl.agents.two_timescale.agent import TwoTimescaleAgent


class TwoTimescale(Algorithm):
    """:class:`oda_rl.agents.TwoTimescaleAgent` as an algorithm of Stable-Baselines3.

    There is no policy to choose: what Stable-Baselines3 does with a network is done by cells.
    Callbacks, loggers, ``Monitor``, ``VecNormalize`` and ``evaluate_policy`` work as with its own
    algorithms. With the same environment and seed it learns what the plain agent learns, bit by
    bit, if rewards fit into single precision, which is what ``DummyVecEnv`` has for them, and
    observations are of the type that their space declares.

    Parameters
    ----------
    env : str, gymnasium.Env or VecEnv
        An environment, the id of one, or a vector environment, with spaces as of
        :class:`oda_rl.agents.TwoTimescaleAgent`.
    seed : int or None
        Of all the agent's randomness and of the environment's. None leaves the environment as it
        was seeded.
    verbose : int
        1 writes the log to the standard output.
    tensorboard_log : str, optional
        Folder of a log for TensorBoard, which must be installed.
    stats_window_size : int
        Episodes over which the log takes means.
    monitor_wrapper : bool
        Wrap an environment that is no vector environment in a ``Monitor``.
    **config
        ``partition`` and settings, as of :class:`oda_rl.agents.TwoTimescaleAgent`.

    Attributes
    ----------
    agent : TwoTimescaleAgent
        The plain agent: ``agent.q_values``, ``agent.codevectors``, ``agent.evaluate``. Its
        ``env`` is None where Stable-Baselines3 changes what the environment returns, or runs it in
        another process.
    policy : CellsPolicy
        What ``predict`` asks.
    num_timesteps : int
        Steps since they were last counted anew; ``agent.num_timesteps`` counts all.

    Raises
    ------
    ValueError
        For settings out of range, or an unknown environment id or partition.
    TypeError
        For unknown settings, or spaces that are not supported.

    Notes
    -----
    The agents find the scale of observations by themselves and need no ``VecNormalize``. It rather
    hinders them, for what they remember keeps the scale that it had at the time. They learn from
    the normalized rewards then, but an episode's return, which says whether it was solved, is that
    of the original ones.

    Examples
    --------
    >>> from stable_baselines3.common.evaluation import evaluate_policy
    >>> model = TwoTimescale("CartPole-v1", seed=0).learn(10_000)
    >>> mean, deviation = evaluate_policy(model, model.get_env(), n_eval_episodes=2)
    >>> bool(mean > 300), model.agent.q_values.shape[1]
    (True, 2)
    """

    agent: TwoTimescaleAgent

    _agent_class = TwoTimescaleAgent
    _load_keywords = ("partition",)


class FittedQ(Algorithm):
    """:class:`oda_rl.agents.FittedQAgent` as an algorithm of Stable-Baselines3.

    As :class:`TwoTimescale`, whose parameters and errors it has.

    Parameters
    ----------
    env : str, gymnasium.Env or VecEnv
        An environment, the id of one, or a vector environment, with spaces as of
        :class:`oda_rl.agents.FittedQAgent`.
    seed, verbose, tensorboard_log, stats_window_size, monitor_wrapper
        As of :class:`TwoTimescale`.
    **config
        Settings of :class:`oda_rl.agents.FittedQConfig`.

    Attributes
    ----------
    agent : FittedQAgent
        The plain agent. ``predict``, and so ``EvalCallback``, asks the policy that it delivers,
        which is seldom the newest.

    Examples
    --------
    >>> from stable_baselines3.common.evaluation import evaluate_policy
    >>> model = FittedQ("CartPole-v1", seed=1).learn(5_000)
    >>> mean, deviation = evaluate_policy(model, model.get_env(), n_eval_episodes=2)
    >>> bool(mean > 400)
    True
    """

    agent: FittedQAgent

    _agent_class = FittedQAgent


class ModelSearch(Algorithm):
    """:class:`oda_rl.agents.ModelAgent` as an algorithm of Stable-Baselines3.

    As :class:`TwoTimescale`, whose parameters and errors it has.

    Parameters
    ----------
    env : str, gymnasium.Env or VecEnv
        An environment, the id of one, or a vector environment, with spaces as of
        :class:`oda_rl.agents.ModelAgent`: several environments with continuous actions need
        ``action_bins``.
    seed, verbose, tensorboard_log, stats_window_size, monitor_wrapper
        As of :class:`TwoTimescale`.
    **config
        Settings of :class:`oda_rl.agents.ModelConfig`.

    Attributes
    ----------
    agent : ModelAgent
        The plain agent.

    Examples
    --------
    >>> from stable_baselines3.common.evaluation import evaluate_policy
    >>> model = ModelSearch("CartPole-v1", seed=0).learn(500)
    >>> mean, deviation = evaluate_policy(model, model.get_env(), n_eval_episodes=2)
    >>> bool(mean > 400)
    True
    """

    agent: ModelAgent

    _agent_class = ModelAgent
