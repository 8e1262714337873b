"""Figure 5 of the ODA paper: how long a cart-pole is balanced, over the number of aggregate states.

BartoCartPole (N_t = 1000), the online agent over cells by annealing (ODA), a self-organising map
(SOM) and a uniform grid, each with one-step learning, as in the paper, and with traces. The learner
is the same everywhere: what differs is what places the cells, and how distances are measured:

learned         the metric that the agent learns along
paper           components divided by the paper's ranges, x and angle ±1, velocities ±4
random play     within some standard deviations of the states of random play (grid)

For every point of the figure six settings are drawn from one space, with one more that is the
partition's own, and tried on the same tuning seeds; those with the best means are tried on more
tuning seeds, and the best mean over all of them is then run on fresh seeds. A
result is the mean length of 100 greedy episodes after 100,000 steps of training.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from common.experiment import FIRST_SEEDS, Experiment, Selection, chosen, say, start
from common.summaries import Row, Rows

from oda_rl.plotting.axes import COLORS, new_axes
from oda_rl.runs.parallel import Run, rows_of
from oda_rl.runs.results import markdown_table

TUNING = Experiment("figure5_tuning", leave_out=("config", "partition"))
EXPERIMENT = Experiment("figure5", leave_out=("config", "partition", "drawn"))
NAME = ("method", "scaling", "size", "traces")  # of a point
ENV_ID = "oda_rl/BartoCartPole-v0"
SOLVED = 950.0
EVALUATION_EPISODES = 100
STEPS = 100_000  # of each training
DRAWS, TUNING_SEEDS = 6, 4  # settings tried for each point, and seeds on which each is tried
FINALISTS, FINAL_SEEDS = 2, 8  # those that are tried on more seeds, and these

HALF_RANGES = (1.0, 4.0, 1.0, 4.0)
PAPER = [[float(i == j) / HALF_RANGES[i] ** 2 for j in range(4)] for i in range(4)]
METRICS: dict[str, Any] = {"learned": "learned", "paper": PAPER}
SIZES = (8, 16, 32, 64, 128, 256)  # at most so many cells
MAP_SIDES = (4, 6, 8, 10, 12, 16)
SPACE: dict[str, tuple[Any, ...]] = {
    "gamma": (0.9, 0.95, 0.98, 0.99, 0.995),
    "step_size": (0.1, 0.2, 0.3, 0.5),
    "step_size_steps": (10_000.0, 30_000.0, 50_000.0, 100_000.0),
    "exploration": (0.05, 0.1, 0.2, 0.4),
    "exploration_decay": (1000.0, 5000.0, 20_000.0),
}
TRACES = (0.8, 0.9, 0.95, 0.98)


@dataclass(frozen=True)
class Point:
    """A partition of one size, with one-step Q-learning or with traces."""

    method: str
    scaling: str
    size: str
    traces: bool
    partition: str
    config: Mapping[str, Any]
    own: tuple[str, tuple[Any, ...]] = "", (None,)
    """A setting of the partition's own that is drawn, too."""


def points() -> list[Point]:
    found = []
    for traces in (False, True):
        for scaling, metric in METRICS.items():
            for size in SIZES:
                config = {"metric": metric, "max_cells": size}
                own = ("cooling", (0.8, 0.9, 0.95))
                found.append(Point("ODA", scaling, f"{size} cells", traces, "oda", config, own))
            for side in MAP_SIDES:
                config = {"metric": metric, "map_shape": [side, side]}
                own = ("map_samples_per_cell", (10, 30, 100))
                size = f"{side} x {side}"
                found.append(Point("SOM", scaling, size, traces, "som", config, own))
        for bins in (2, 3, 4, 5):
            ranges = [[-half, half] for half in HALF_RANGES]
            config = {"metric": PAPER, "bins": bins, "ranges": ranges}
            found.append(Point("grid", "paper", f"{bins}^4", traces, "grid", config))
        for bins in (2, 4, 6):
            own = ("spread", (1.0, 1.5, 2.0, 3.0, 4.0))
            config = {"metric": "std", "bins": bins}
            found.append(Point("grid", "random play", f"{bins}^4", traces, "grid", config, own))
    return found


def draws(point: Point) -> list[Row]:
    rng = np.random.default_rng(0)
    space = {**SPACE, "trace_decay": TRACES, "own": point.own[1]}
    found = []
    for _ in range(DRAWS):
        # One number each, whatever the space, so that all points try the same.
        drawn = {name: given[int(rng.random() * len(given))] for name, given in space.items()}
        own = drawn.pop("own")
        if point.own[0]:
            drawn[point.own[0]] = own
        if not point.traces:
            drawn["trace_decay"] = 0.0
        found.append(drawn)
    return found


def train(
    *, partition: str, config: Mapping[str, Any], drawn: Mapping[str, Any], seed: int, steps: int,
    **name: Any,
) -> Row:  # fmt: skip
    from oda_rl.agents import TwoTimescaleAgent

    agent = TwoTimescaleAgent(ENV_ID, partition=partition, seed=seed, **config, **drawn)
    agent.learn(steps)
    returns = agent.evaluate(EVALUATION_EPISODES, seed=seed + 10**8)
    return {"cells": agent.n_cells, "mean": returns.mean(), "seconds": agent.training_seconds}


def setting(point: Point, drawn: Mapping[str, Any], seed: int) -> Row:
    return {
        **{name: getattr(point, name) for name in (*NAME, "partition", "config")},
        "drawn": drawn, "seed": seed, "steps": STEPS,
    }  # fmt: skip


def tune(all_points: list[Point], options: Selection) -> tuple[list[Run], list[Row]]:
    """Try the drawn settings of every point; returns the runs, and each point's best.

    A few seeds choose badly among many settings, and many seeds for all would take long: so those
    that do best on a few are tried on more.
    """
    begin = FIRST_SEEDS[TUNING.name]
    first = range(begin, begin + TUNING_SEEDS)
    more = range(first.stop, first.stop + FINAL_SEEDS)
    tried = [draws(point) for point in all_points]
    runs: list[Run] = []
    totals: list[dict[int, float]] = [dict.fromkeys(range(DRAWS), 0.0) for _ in all_points]
    for seeds, most, title in ((first, DRAWS, "tuning"), (more, FINALISTS, "tuning, finals")):
        left = [sorted(sorted(total, key=total.__getitem__)[-most:]) for total in totals]
        begun = [(point, i) for point, still in enumerate(left) for i in still]
        settings = [
            setting(all_points[point], tried[point][i], seed)
            for point, i in begun
            for seed in seeds
        ]
        made = TUNING.runs(train, settings, options, title)
        returns = np.array([run.rows[0]["mean"] if run.rows else 0.0 for run in made])
        sums = returns.reshape(len(begun), len(seeds)).sum(axis=1)
        totals = [{i: total[i] for i in still} for total, still in zip(totals, left, strict=True)]
        for (point, i), added in zip(begun, sums, strict=True):
            totals[point][i] += float(added)
        runs += made
    best = [max(total, key=total.__getitem__) for total in totals]
    return runs, [candidates[i] for candidates, i in zip(tried, best, strict=True)]


def tables(rows: Rows) -> dict[str, str]:
    lines = []
    for of_partition in rows.groups("method", "scaling"):
        line = [f"{of_partition[0]['method']}, {of_partition[0]['scaling']} scaling"]
        for traces in (False, True):
            found = []
            for at in of_partition.where(traces=traces).groups("size"):
                means = at.column("mean")
                found.append((means.mean(), at.column("cells").mean(), np.mean(means >= SOLVED)))
            (low, _, _), (mean, cells, share) = min(found), max(found)
            line += [f"{mean:.0f} ({cells:.0f} cells)", f"{share:.2f}", f"{low:.0f}"]
        lines.append(line)
    heads = ["", *(f"{kind}: {head}" if i == 0 else head
                   for kind in ("one step", "traces")
                   for i, head in enumerate(("best mean", "solved", "min mean")))]  # fmt: skip
    return {"figure 5": markdown_table(heads, lines)}


def draw(rows: Rows) -> Any:
    def place(at: Rows) -> tuple[float, ...]:
        means = at.column("mean")
        quartiles = np.percentile(means, (50, 25, 75))
        return (at.column("cells").mean(), *quartiles, np.mean(means >= SOLVED))

    panels = new_axes(10.0, 7.0, columns=2, rows=2)
    panels[0].figure.subplots_adjust(left=0.08, right=0.98, top=0.94, bottom=0.15, hspace=0.12)
    looks = {
        ("ODA", "learned"): (COLORS[0], "o-"), ("ODA", "paper"): (COLORS[4], "o--"),
        ("SOM", "learned"): (COLORS[5], "s-"), ("SOM", "paper"): (COLORS[1], "s--"),
        ("grid", "random play"): ("black", "^-"), ("grid", "paper"): (COLORS[7], "^--"),
    }  # fmt: skip
    for i, traces in enumerate((False, True)):
        above, below = panels[i], panels[2 + i]
        for (method, scaling), (color, style) in looks.items():
            own = rows.where(method=method, scaling=scaling, traces=traces)
            if not own:
                continue
            here = sorted(map(place, own.groups("size")))
            cells, median, low, high, share = np.array(here, dtype=np.float64).T
            look = {"color": color, "markersize": 4.0, "linewidth": 1.2}
            above.errorbar(
                cells, median, (median - low, high - median), fmt=style, capsize=2.0,
                elinewidth=0.8, **look,
            )  # fmt: skip
            below.plot(cells, share, style, label=f"{method}, {scaling} scaling", **look)
        above.set(title="with traces" if traces else "one-step learning", ylim=(-20.0, 1040.0))
        below.set(xlabel="aggregate states", ylim=(-0.04, 1.05))
        for ax in (above, below):
            ax.set_xscale("log", base=2)
            ax.set_xticks([4, 8, 16, 32, 64, 128, 256, 512, 1024])
            ax.xaxis.set_major_formatter("{x:.0f}")
            ax.grid(axis="y", alpha=0.25)
            ax.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("time steps balanced: median, quartiles")
    panels[2].set_ylabel(f"share of seeds with a mean ≥ {SOLVED:.0f}")
    handles, labels = panels[2].get_legend_handles_labels()
    panels[0].figure.legend(handles, labels, loc="lower center", ncols=3, frameon=False)
    return panels[0]


def main(options: Selection) -> None:
    sizes = chosen(options.only, dict.fromkeys(point.size for point in points()))
    todo = [point for point in points() if point.size in sizes]
    tuning, best = tune(todo, options)
    settings = [
        setting(point, drawn, seed)
        for point, drawn in zip(todo, best, strict=True)
        for seed in EXPERIMENT.seeds(options)
    ]
    runs = EXPERIMENT.runs(train, settings, options, "fresh seeds")
    say(
        f"{len(todo)} points, each tuned by {DRAWS} settings x {TUNING_SEEDS} seeds (from "
        f"{FIRST_SEEDS[TUNING.name]:,} on), and the best {FINALISTS} x {FINAL_SEEDS} more, "
        f"{STEPS:,} steps each"
    )
    rows = Rows(rows_of(runs))
    say(*tables(rows).values())
    TUNING.store(tuning)
    EXPERIMENT.store(runs)
    EXPERIMENT.save(draw(rows))


if __name__ == "__main__":
    start(main, Selection, __doc__)
