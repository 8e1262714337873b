"""Figures of the pages: policies, how they were learned, the estimators, and the logo.

Run: python scripts/draw_figures.py
Writes results/NAME.png and results/logo.svg. All seeds are 0, but for those of rows in results/.
"""

from pathlib import Path

import numpy as np
import tyro
from common.experiment import RESULTS, Experiment
from common.summaries import Rows
from matplotlib.axes import Axes
from scipy.spatial import Voronoi
from sklearn.datasets import make_blobs, make_circles, make_moons

import oda_rl
from oda_rl.agents import FittedQAgent, ModelAgent, TwoTimescaleAgent, diff
from oda_rl.plotting import plot_difference, plot_learning_curve, plot_metric, plot_partition
from oda_rl.plotting.axes import COLORS, new_axes
from oda_rl.plotting.estimators import plot_bifurcation, plot_clusters, plot_decision_regions
from oda_rl.runs.results import read_rows

STORED = Path(__file__).parents[1] / "results"  # rows of benchmarks
BARTO, ONLINE_STEPS, FITTED_STEPS = "oda_rl/BartoCartPole-v0", 50_000, 10_000
MOONS = make_moons(1500, noise=0.15, random_state=0)
CIRCLES = make_circles(1500, noise=0.08, factor=0.5, random_state=0)


def draw_policies() -> None:
    online = TwoTimescaleAgent(BARTO, max_cells=32, seed=0).learn(ONLINE_STEPS)  # few, to be seen
    visited = online.visited_states(2_000, seed=0)
    Experiment("partition").save(plot_partition(online, (2, 3), visited=visited))
    Experiment("bifurcation").save(plot_bifurcation(online.history))
    Experiment("metric").save(plot_metric(online))
    fitted = FittedQAgent("CartPole-v1", seed=0).learn(FITTED_STEPS)
    usual = TwoTimescaleAgent("CartPole-v1", seed=0).learn(ONLINE_STEPS)
    for name, agent in (("learning_curve", fitted), ("online_curve", usual)):
        ax = plot_learning_curve(agent.episodes.curve)
        ax.set_title(f"{type(agent).__name__} on {agent.env_id}")
        Experiment(name).save(ax)
    model = ModelAgent("CartPole-v1", seed=0).learn(500)
    visited = model.visited_states(2_000, seed=0)
    ax = plot_partition(model, (2, 3), visited=visited)
    ax.set_title(f"CartPole-v1, {ax.get_title(loc='left')}", loc="left")
    Experiment("rule").save(ax)
    edited = model.edit().lock(1).forbid("push left", where="pole angular velocity > .3").done()
    change = diff(model.policy, edited, model.world.seen.before, "CartPole-v1", seed=2)
    Experiment("difference").save(plot_difference(change))


def draw_clusterer(left: Axes, right: Axes) -> None:
    X, _ = make_blobs(2000, centers=6, cluster_std=0.8, random_state=7)
    model = oda_rl.ODAClusterer("auto", random_state=0).fit(X)
    plot_bifurcation(model.history_, ax=left)
    plot_clusters(model, X, ax=right)
    right.scatter([], [], 80.0, "white", edgecolors="black", label="codevector, area by weight")
    right.legend(frameon=False, loc="lower right", bbox_to_anchor=(1.0, 1.0))


def draw_regressor_tree(left: Axes, right: Axes) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(0.0, 6.0, (400, 1))
    y, line = np.sin(x[:, 0] ** 1.5) + rng.normal(scale=0.2, size=400), np.linspace(0.0, 6.0, 500)
    left.plot(x, y, ".", color="0.7", markersize=3)
    for local_model, color in zip(("constant", "linear"), COLORS[:2], strict=True):
        model = oda_rl.ODARegressor(20, local_model=local_model, random_state=0).fit(x, y)
        left.plot(line, model.predict(line[:, None]), color=color, label=local_model)
    left.legend(frameon=False)
    left.set(xlabel="feature", ylabel="target")
    left.set_title("Regression in 20 cells", loc="left")
    plot_decision_regions(
        oda_rl.ODATreeClassifier(random_state=0).fit(*CIRCLES), *CIRCLES, ax=right
    )


def draw_map_lvq(left: Axes, right: Axes) -> None:
    net = oda_rl.SOM((12, 6), random_state=0).fit(MOONS[0]).codevectors_.reshape(12, 6, 2)
    left.plot(*MOONS[0].T, ".", color="0.8", markersize=2)
    for lines in (net, net.swapaxes(0, 1)):
        left.plot(lines[:, :, 0], lines[:, :, 1], color=COLORS[0], linewidth=1)
    left.set_title("A map of 12 by 6 codevectors", loc="left")
    plot_decision_regions(oda_rl.LVQ(8, random_state=0).fit(*MOONS), *MOONS, ax=right)


def draw_densities(left: Axes, right: Axes) -> None:
    classifier = oda_rl.DensityClassifier(random_state=0).fit(*CIRCLES)
    plot_decision_regions(classifier, *CIRCLES, ax=left)
    detector = oda_rl.DensityOutlierDetector(contamination=0.03, random_state=0).fit(MOONS[0])
    plot_decision_regions(detector, MOONS[0], detector.predict(MOONS[0]), ax=right)


def draw_offline(left: Axes, right: Axes) -> None:
    for ax, task in ((left, "CartPole-v1"), (right, "Pendulum-v1")):
        rows = Rows(read_rows(STORED / "benchmark_offline.csv")).where(task=task)
        draw_means(ax, rows, "quality", "method", f"return on {task}")
    left.legend(["behaviour policy", "learned from its log"], frameon=False)


def draw_export(left: Axes, right: Axes) -> None:
    rows = Rows(read_rows(STORED / "benchmark_export.csv"))
    for color, group in zip(COLORS, rows.groups("agent", "tables"), strict=False):
        looks = {"color": color, "label": f"{group[0]['agent']}, {group[0]['tables']}"}
        left.loglog(group.column("bytes"), group.column("ns"), "o", alpha=0.6, **looks)
    left.set(xlabel="bytes of tables", ylabel="ns a decision")
    left.legend(frameon=False)
    chip = Rows(read_rows(STORED / "benchmark_chip.csv"))
    draw_means(right, chip, "start", "start", "steps balanced after learning in C")
    right.set_xlabel("learning in C begins with")


def draw_means(ax: Axes, rows: Rows, places: str, kinds: str, label: str) -> None:
    """Draw the mean of each row around its place, in a colour for each kind at that place."""
    names = rows.values(places)
    for place, name in enumerate(names):
        parts = rows.where(**{places: name}).groups(kinds)
        for k, part in enumerate(parts):
            apart = 0.2 * (k - 0.5 * (len(parts) - 1)) + 0.005 * (np.arange(len(part)) % 20 - 9.5)
            ax.plot(place + apart, part.column("mean"), "o", color=COLORS[k], alpha=0.6)
    ax.set(xlim=(-0.5, len(names) - 0.5), xticks=range(len(names)), xticklabels=names, ylabel=label)


def draw_logo() -> None:
    """Write six clusters of the half moons as a square of polygons."""
    model = oda_rl.ODAClusterer(6, random_state=0).fit(MOONS[0])
    places = (model.cluster_centers_ - MOONS[0].min(axis=0)) / np.ptp(MOONS[0], axis=0)
    mirrored = [places]  # at each side of the square, so that cells end there
    for axis in range(2):
        mirrored += [np.where(np.arange(2) == axis, 2.0 * side - places, places) for side in (0, 1)]
    diagram = Voronoi(np.concatenate(mirrored))
    shapes = []
    for cell, color in enumerate(COLORS[:6]):
        corners = 32.0 * diagram.vertices[diagram.regions[diagram.point_region[cell]]]
        points = " ".join(f"{x:.1f},{32.0 - y:.1f}" for x, y in corners)
        shapes.append(f'<polygon points="{points}" fill="{color}" stroke="#fff" stroke-width="1"/>')
    svg = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">'
    (RESULTS / "logo.svg").write_text("\n".join([svg, *shapes, "</svg>\n"]), encoding="utf-8")


def main() -> None:
    draw_policies()
    for draw in (
        draw_clusterer, draw_regressor_tree, draw_map_lvq, draw_densities, draw_offline, draw_export
    ):  # fmt: skip
        axes = new_axes(10.0, 4.4, 2)
        axes[0].figure.subplots_adjust(right=0.98)  # nothing stands at the right
        draw(*axes)
        for ax in axes:
            if not ax.get_xlabel() + ax.get_ylabel():
                ax.set(xlabel="first feature", ylabel="second feature")
        Experiment(draw.__name__.removeprefix("draw_")).save(axes[0])
    draw_logo()


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
