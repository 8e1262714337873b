import re

import numpy as np
import oracles
import pytest
from minisom import MiniSom
from sklearn.datasets import load_digits, make_blobs, make_circles

from oda_rl import SOM
from oda_rl.quantization.kernels import Grid, write_pulls


@pytest.mark.parametrize("shape", [(5, 4), (1, 7)])
def test_it_is_minisom(shape):
    # The same start, the same order, the same decay: the same map, but for pulls below 1e-9.
    rng = np.random.default_rng(0)
    points, start = rng.normal(size=(300, 3)), rng.normal(size=(*shape, 3))
    n = 2 * len(points)
    model = SOM(shape, init=start.reshape(-1, 3), decay_samples=n, width=2.0)
    for _ in range(2):
        model.partial_fit(points)
    theirs = MiniSom(
        *shape, 3, sigma=2.0, learning_rate=0.5,
        decay_function=lambda rate, t, most: rate * (0.01 / 0.5) ** (t / most),
    )  # fmt: skip
    theirs._sigma_decay_function = lambda sigma, t, most: sigma * (0.5 / 2.0) ** (t / most)
    theirs._weights = start.copy()
    theirs.train(np.tile(points, (2, 1)), n)
    np.testing.assert_allclose(
        model.cluster_centers_, theirs.get_weights().reshape(-1, 3), rtol=0, atol=1e-6
    )
    winners = np.array([theirs.winner(point) for point in points])
    np.testing.assert_array_equal(model.positions_[model.predict(points)], winners)
    assert -model.score(points) == pytest.approx((model.transform(points).min(axis=1) ** 2).mean())


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("shape", [(1, 6), (6, 1), (4, 5), (1, 1)])
def test_pulls_are_those_of_the_formula(shape, periodic):
    out = np.empty(shape[0] * shape[1])
    for winner in range(len(out)):
        write_pulls(winner, Grid(*shape, periodic), 1.3, out)
        expected = oracles.som_pulls(winner, shape, periodic, 1.3)
        np.testing.assert_allclose(out, expected, rtol=1e-12)


@pytest.mark.parametrize("periodic", [False, True])
def test_a_hexagonal_map_has_six_neighbours_at_one_step(periodic):
    shape, out = (4, 5), np.empty(20)
    rows, columns = np.divmod(np.arange(20), 5)
    places = np.column_stack([np.sqrt(0.75) * rows, columns + 0.5 * (rows % 2)])
    lengths = np.array([np.sqrt(0.75) * 4, 5.0])
    for winner in range(20):
        gaps = np.abs(places - places[winner])
        gaps = np.minimum(gaps, lengths - gaps) if periodic else gaps
        write_pulls(winner, Grid(*shape, periodic, True), 1.3, out)
        np.testing.assert_allclose(out, np.exp(-(gaps**2).sum(axis=1) / (2 * 1.3**2)), rtol=1e-12)
        near = np.isclose(np.hypot(*gaps.T), 1.0).sum()
        assert near == 6 if periodic else 2 <= near <= 6
    points = np.random.default_rng(0).random((300, 2))
    model = SOM(shape, topology="hexagonal", periodic=periodic, random_state=0).fit(points)
    distances = np.sort(model.transform(points), axis=1)
    assert model.quantization_error(points) == pytest.approx(distances[:, 0].mean())
    assert model.u_matrix().shape == shape
    assert 0.0 <= model.topographic_error(points) < 0.5
    with pytest.raises(ValueError, match="needs an even number of rows"):
        SOM((3, 4), topology="hexagonal", periodic=True).fit(points)


def test_it_orders_a_ring():
    points, _ = make_circles(1000, noise=0.02, factor=0.99, random_state=0)
    ring = SOM(20, periodic=True, random_state=0).fit(points)
    angles = np.unwrap(np.arctan2(*ring.cluster_centers_.T))
    steps = np.diff(angles)
    assert (np.sign(steps) == np.sign(steps[0])).all()
    assert abs(abs(angles[-1] - angles[0]) - 2 * np.pi * 19 / 20) < 0.2
    assert ring.topographic_error(points) == 0.0


def test_neighbours_on_the_map_are_neighbours_in_the_data():
    points, _ = load_digits(return_X_y=True)
    som = SOM((8, 8), random_state=0).fit(points)
    shuffled = SOM((8, 8), init=np.random.default_rng(0).permutation(som.cluster_centers_))
    shuffled.fit(points[:1])  # one sample hardly moves anything
    assert som.topographic_error(points) < 0.15 < 0.5 < shuffled.topographic_error(points)
    # 64 codevectors explain most of the variance that as many of k-means explain (.72).
    assert som.score(points) / -points.var(axis=0).sum() < 0.4


def test_ridges_of_the_u_matrix_part_clusters():
    points, _ = make_blobs(600, centers=[[-10, 0], [10, 0]], random_state=0)
    som = SOM((2, 10), random_state=0).fit(points)
    columns = som.u_matrix().mean(axis=0)
    assert columns.argmax() in {4, 5}
    assert columns.max() > 5 * np.median(columns)
    assert SOM(1).fit(points).u_matrix().tolist() == [[0.0]]
    pair = SOM(2, periodic=True, random_state=0).fit(points)
    np.testing.assert_allclose(pair.u_matrix(), np.linalg.norm(np.diff(pair.codevectors_, axis=0)))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [({"shape": (2, 3, 4)}, "shape is (2, 3, 4): it must be one or two integers"),
     ({"shape": (2, 0)}, "shape is (2, 0)"), ({"shape": (2.5,)}, "shape is (2.5,)"),
     ({"shape": 0}, "'shape' parameter"),
     ({"init": [[0.0]], "shape": 2}, "does not match the number of codevectors"),
     ({"final_width": 0.0}, "'final_width' parameter"),
     ({"learning_rate": 1.5}, "'learning_rate' parameter")],
)  # fmt: skip
def test_bad_parameters(parameters, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        SOM(**parameters).fit([[0.0], [1.0]])
