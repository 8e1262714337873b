"""The agents as algorithms of Stable-Baselines3, for its callbacks, loggers and environments."""

from oda_rl.agents.fitted.agent import FittedQAgent
from oda_rl.agents.fitted.codevectors import CodevectorAgent
from oda_rl.agents.model.agent import ModelAgent
from oda_rl.agents.sb3.base import Algorithm
from oda_rl.agents.two_timescale.agent import TwoTimescaleAgent


class TwoTimescale(Algorithm):
    """:class:`oda_rl.agents.TwoTimescaleAgent` as an algorithm of Stable-Baselines3.

    Cells take the place of the network. Callbacks, loggers, ``Monitor``, ``VecNormalize`` and
    ``evaluate_policy`` work as with Stable-Baselines3's own algorithms. With the same environment
    and seed it learns what the plain agent learns, bit by bit, if rewards are exact in single
    precision, as ``DummyVecEnv`` stores them, and observations have the type of their space.

    Parameters
    ----------
    env : str, gymnasium.Env or VecEnv
        An environment, its id, or a vector environment, with spaces as for
        :class:`oda_rl.agents.TwoTimescaleAgent`.
    seed : int or None
        Random seed of agent and environment. None does not seed the environment.
    verbose : int
        1 writes the log to the standard output.
    tensorboard_log : str, optional
        Folder of a log for TensorBoard, which must be installed.
    stats_window_size : int
        Number of episodes in the log's means.
    monitor_wrapper : bool
        Wrap a single environment in a ``Monitor``.
    **config
        ``partition`` and settings, as for :class:`oda_rl.agents.TwoTimescaleAgent`, whose errors
        are raised.

    Attributes
    ----------
    agent : TwoTimescaleAgent
        The plain agent: ``agent.q_values``, ``agent.codevectors``, ``agent.evaluate``. Its ``env``
        is None if Stable-Baselines3 changes the environment's returns or runs it elsewhere.
    num_timesteps : int
        Steps since the counter was last reset; ``agent.num_timesteps`` counts all.

    Notes
    -----
    The agents estimate the scale of observations and need no ``VecNormalize``, which hinders them:
    remembered observations keep the scale of their time. With it they learn from the normalized
    rewards, but episode returns are those of the original rewards.

    Examples
    --------
    >>> from stable_baselines3.common.evaluation import evaluate_policy
    >>> model = TwoTimescale("CartPole-v1", seed=0).learn(20_000)
    >>> mean, deviation = evaluate_policy(model, model.get_env(), n_eval_episodes=2)
    >>> bool(mean > 200), model.agent.q_values.shape[1]
    (True, 2)
    """

    agent: TwoTimescaleAgent

    _agent_class = TwoTimescaleAgent
    _load_keywords = ("partition",)


class FittedQ(Algorithm):
    """:class:`oda_rl.agents.FittedQAgent` as an algorithm of Stable-Baselines3.

    Parameters, attributes and errors are those of :class:`TwoTimescale`, with spaces as for
    :class:`oda_rl.agents.FittedQAgent` and the settings of :class:`oda_rl.agents.FittedQConfig`.
    ``predict``, and so ``EvalCallback``, uses the delivered policy, which is rarely the newest.

    Examples
    --------
    >>> from stable_baselines3.common.evaluation import evaluate_policy
    >>> model = FittedQ("CartPole-v1", seed=0).learn(5_000)
    >>> mean, deviation = evaluate_policy(model, model.get_env(), n_eval_episodes=2)
    >>> bool(mean > 400)
    True
    """

    agent: FittedQAgent

    _agent_class = FittedQAgent


class Codevector(Algorithm):
    """:class:`oda_rl.agents.CodevectorAgent` as an algorithm of Stable-Baselines3.

    Parameters, attributes and errors are those of :class:`TwoTimescale`, in one environment with
    spaces as for :class:`oda_rl.agents.CodevectorAgent`, and the settings of
    :class:`oda_rl.agents.FittedQConfig`.

    Examples
    --------
    >>> model = Codevector("Pendulum-v1", seed=0).learn(500)
    >>> model.action_space.contains(model.predict(model.get_env().reset())[0][0])
    True
    """

    agent: CodevectorAgent

    _agent_class = CodevectorAgent


class Model(Algorithm):
    """:class:`oda_rl.agents.ModelAgent` as an algorithm of Stable-Baselines3.

    Parameters, attributes and errors are those of :class:`TwoTimescale`, with spaces as for
    :class:`oda_rl.agents.ModelAgent` and the settings of :class:`oda_rl.agents.ModelConfig`.
    Several environments with continuous actions need ``action_bins``.

    Examples
    --------
    >>> bool(Model("CartPole-v1", seed=0).learn(500).agent.evaluate(2).min() > 400)
    True
    """

    agent: ModelAgent

    _agent_class = ModelAgent
