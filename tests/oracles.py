"""The slow and obvious version of every fast thing."""

import math

import numpy as np
from scipy.optimize import minimize


def cartpole_step(state, action, friction_cart=0.0005, friction_pole=0.000002):
    """Barto, Sutton and Anderson's equations as they are written, by Euler's method."""
    x, x_dot, theta, theta_dot = (float(value) for value in state)
    g, m_c, m, l, tau = 9.8, 1.0, 0.1, 0.5, 0.02  # noqa: E741
    force = 10.0 if action == 1 else -10.0
    sign = (x_dot > 0) - (x_dot < 0)
    theta_acc = (
        g * math.sin(theta)
        + math.cos(theta)
        * (-force - m * l * theta_dot**2 * math.sin(theta) + friction_cart * sign)
        / (m_c + m)
        - friction_pole * theta_dot / (m * l)
    ) / (l * (4 / 3 - m * math.cos(theta) ** 2 / (m_c + m)))
    x_acc = (
        force
        + m * l * (theta_dot**2 * math.sin(theta) - theta_acc * math.cos(theta))
        - friction_cart * sign
    ) / (m_c + m)
    after = [
        x + tau * x_dot,
        x_dot + tau * x_acc,
        theta + tau * theta_dot,
        theta_dot + tau * theta_acc,
    ]
    failed = abs(after[0]) > 2.4 or abs(after[2]) > 12 * math.pi / 180
    return np.array(after), failed


def divergence(metric, x, y):
    """Squared Mahalanobis distance."""
    difference = np.asarray(x) - np.asarray(y)
    return float(difference @ metric @ difference)


def nearest(codevectors, metric, x):
    """Index of the nearest codevector."""
    return min(range(len(codevectors)), key=lambda k: divergence(metric, x, codevectors[k]))


def oda_observe(masses, codevectors, metric, x, temperature, step_size):
    """One step of online deterministic annealing in the form of the papers, with sigma = p mu."""
    sigma = masses[:, None] * codevectors
    distances = np.array([divergence(metric, x, mu) for mu in codevectors])
    weights = masses * np.exp(-(distances - distances.min()) / temperature)
    shares = weights / weights.sum()
    new_masses = masses + step_size * (shares - masses)
    sigma = sigma + step_size * (shares[:, None] * x - sigma)
    return new_masses, sigma / new_masses[:, None]


def batch_annealing(points, codevectors, temperature, iterations=2000):
    """Batch deterministic annealing at one temperature (Rose 1998), squared Euclidean."""
    codevectors = np.array(codevectors, dtype=float)
    masses = np.full(len(codevectors), 1 / len(codevectors))
    for _ in range(iterations):
        distances = ((points[:, None] - codevectors[None]) ** 2).sum(-1)
        weights = masses * np.exp(-(distances - distances.min(1, keepdims=True)) / temperature)
        shares = weights / weights.sum(1, keepdims=True)
        masses = shares.mean(0)
        codevectors = (shares.T @ points) / shares.sum(0)[:, None]
    return masses, codevectors


def diagram(metric, codevectors):
    """Rows of the affine diagram: the part of the divergence that depends on the cell."""
    return np.array([[mu @ metric @ mu, *(-2 * metric @ mu)] for mu in codevectors])


def box(x, ranges, bins):
    """Number of the box of a uniform grid; the last component varies fastest."""
    number = 0
    for value, (low, high), n in zip(x, ranges, bins, strict=True):
        number = number * n + min(max(math.floor((value - low) / (high - low) * n), 0), n - 1)
    return number


def som_pulls(winner, shape, periodic, width):
    """A Gaussian of the distance on the map."""
    pulls = []
    for row in range(shape[0]):
        for column in range(shape[1]):
            down = abs(row - winner // shape[1])
            right = abs(column - winner % shape[1])
            if periodic:
                down, right = min(down, shape[0] - down), min(right, shape[1] - right)
            pulls.append(math.exp(-(down**2 + right**2) / (2 * width**2)))
    return np.array(pulls)


def som_observe(codevectors, metric, shape, periodic, x, rate, width):
    """One step of a self-organising map."""
    pulls = som_pulls(nearest(codevectors, metric, x), shape, periodic, width)
    return codevectors + rate * pulls[:, None] * (x - codevectors)


class TrueOnlineSarsa:
    """True online Sarsa(lambda) over a table: van Seijen et al. 2016, algorithm 2."""

    def __init__(self, values, gamma, trace_decay, step_size):
        self.values, self.gamma, self.step_size = values, gamma, step_size
        self.decay = gamma * trace_decay
        self.begin()

    def share(self):
        """Another trajectory from which the same values are learned."""
        return TrueOnlineSarsa(self.values, self.gamma, self.decay / self.gamma, self.step_size)

    def begin(self):
        self.traces, self.last = np.zeros(self.values.shape), None

    def update(self, state, action, reward, next_state, next_action, terminated):
        features = np.zeros(self.values.shape)
        features[state, action] = 1.0
        value = self.values[state, action]
        future = 0.0 if terminated else self.values[next_state, next_action]
        change = 0.0 if self.last is None else self.last
        error = reward + self.gamma * future - value
        fresh = self.step_size * (1.0 - self.decay * self.traces[state, action])
        self.traces = self.decay * self.traces + fresh * features
        self.values += (error + change) * self.traces - self.step_size * change * features
        # What this step has changed of the value that it used; other trajectories do not count.
        self.last = self.values[next_state, next_action] - future
        if terminated:
            self.begin()


def compete(codevectors, points, order):
    """Definition 1 of the ODA paper: only the winner moves, by 1/(1 + .9 n)."""
    codevectors = np.array(codevectors, dtype=float)
    counts = [1] * len(codevectors)
    total = 0.0
    for i in order:
        distances = ((points[i] - codevectors) ** 2).sum(1)
        winner = distances.argmin()
        total += distances[winner]
        codevectors[winner] += (points[i] - codevectors[winner]) / (1 + 0.9 * counts[winner])
        counts[winner] += 1
    return codevectors, total


def lvq1(codevectors, labels, points, targets, order, rate):
    """Kohonen's LVQ1 with a linearly falling step size."""
    codevectors = np.array(codevectors, dtype=float)
    for t, i in enumerate(order):
        winner = ((points[i] - codevectors) ** 2).sum(1).argmin()
        sign = 1 if labels[winner] == targets[i] else -1
        step = rate * (1 - t / len(order))
        codevectors[winner] += sign * step * (points[i] - codevectors[winner])
    return codevectors


def glvq_cost(codevectors, labels, x, c):
    """Sato and Yamada's cost of one sample: a sigmoid of slope 4."""
    distances = ((x - codevectors) ** 2).sum(1)
    right, wrong = distances[labels == c].min(), distances[labels != c].min()
    return 1 / (1 + math.exp(-4 * (right - wrong) / (right + wrong)))


def glvq(codevectors, labels, points, targets, order, rate):
    """Generalized LVQ: the gradient of the cost times (d+ + d-)/4."""
    codevectors = np.array(codevectors, dtype=float)
    for t, i in enumerate(order):
        x = points[i]
        distances = ((x - codevectors) ** 2).sum(1)
        own = labels == targets[i]
        right = np.where(own, distances, np.inf).argmin()
        wrong = np.where(own, np.inf, distances).argmin()
        total = distances[right] + distances[wrong]
        cost = glvq_cost(codevectors, labels, x, targets[i])
        step = rate * (1 - t / len(order)) * 4 * cost * (1 - cost)
        codevectors[right] += step * distances[wrong] / total * (x - codevectors[right])
        codevectors[wrong] -= step * distances[right] / total * (x - codevectors[wrong])
    return codevectors


def rslvq(codevectors, masses, labels, temperature, points, targets, order, rate):
    """Robust soft LVQ, eq. 20 of Seo and Obermayer with a mass for each codevector."""
    codevectors = np.array(codevectors, dtype=float)
    for t, i in enumerate(order):
        distances = ((points[i] - codevectors) ** 2).sum(1)
        weights = masses * np.exp(-(distances - distances.min()) / temperature)
        own = labels == targets[i]
        pulls = np.where(own, weights / weights[own].sum(), 0) - weights / weights.sum()
        step = rate * (1 - t / len(order))
        codevectors += step * pulls[:, None] * (points[i] - codevectors)
    return codevectors


def descend(tree, features, i):
    """Path of sample i down a tree; ``features(depth)`` is what a level sees of all samples."""
    node, path = tree.nodes[0], ()
    while node.children:
        x = features(len(path))[i]
        scores = [
            offset + gradient @ (x - node.cells.centre)
            for offset, gradient in zip(node.cells.offsets, node.cells.gradients, strict=True)
        ]
        path = (*path, int(np.argmin(scores)))
        node = tree.nodes[node.children[path[-1]]]
    return path


def anneal_stream(
    formula, codevectors, sizes, points, classes, weights, temperature, forgetting=0.0
):
    """Online annealing of a codebook for each class: eq. 15 of the paper, a counter for each."""
    d = codevectors.shape[1]
    averages = np.zeros((len(codevectors), points.shape[1] - d))
    codevectors = np.column_stack([codevectors, averages])
    masses = np.concatenate([np.full(size, 1 / size) for size in sizes])
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    counts, total = np.zeros(len(sizes)), 0.0
    for x, c, weight in zip(points, classes, weights, strict=True):
        own = range(bounds[c], bounds[c + 1])
        distances = {k: formula(x[:d], codevectors[k, :d]) for k in own}
        least = min(distances.values())
        total += weight * least
        shares = {k: masses[k] * math.exp((least - distances[k]) / temperature) for k in own}
        step = max(1 / (1 + 0.9 * (counts[c] + sizes[c])), forgetting / sizes[c])
        step = min(1.0, weight * step)
        counts[c] += weight
        for k in own:
            share = shares[k] / sum(shares.values())
            masses[k] += step * (share - masses[k])
            codevectors[k] += step * share / masses[k] * (x - codevectors[k])
    return masses, codevectors, total / weights.sum()


def gradient_outer_product(points, groups, targets):
    """Sum of n g gᵀ over groups of at least 2 (d + 1) points, g by a ridge with an intercept."""
    d = points.shape[1]
    outer = np.zeros((d, d))
    for group in set(groups.tolist()):
        x, y = points[groups == group], targets[groups == group]
        if group < 0 or len(x) < 2 * (d + 1):
            continue
        x, y = x - x.mean(axis=0), y - y.mean()
        ridge = 0.01 * (x**2).sum() / d + 1e-6
        gradient = np.linalg.solve(x.T @ x + ridge * np.eye(d), x.T @ y)
        outer += len(x) * np.outer(gradient, gradient)
    return outer


def density(points, changes):
    """How many components the rows of a linear law have, from 0 (one) to 1 (all alike).

    Points, shape (n, d), have the mean 0; rows weigh R² / (1.01 - R²).
    """
    law = np.linalg.lstsq(points, changes, rcond=None)[0].T
    counts, weights = [], []
    for row, change in zip(law, changes.T, strict=True):
        parts = [abs(a) * np.sqrt((x**2).mean()) for a, x in zip(row, points.T, strict=True)]
        counts.append(sum(parts) / np.sqrt(sum(part**2 for part in parts)))
        share = ((points @ row) ** 2).sum() / (change**2).sum()
        weights.append(share / (1.01 - share))
    mean = np.average(counts, weights=weights)
    return (mean - 1.0) / (np.sqrt(points.shape[1]) - 1.0)


class Trajectories:
    """What a memory holds, as lists: observations, steps taken from them, and how it ended."""

    def __init__(self):
        self.done = []
        self.fresh = None

    def begin(self, observation):
        last = self.done[-1] if self.done else None
        goes_on = last and last["end"] == "cut" and last["observations"][-1] == observation
        self.fresh = None if goes_on else observation

    def remember(self, action, reward, observation, terminated):
        if self.fresh is not None:
            self.done.append({"observations": [self.fresh], "steps": []})
            self.fresh = None
        self.done[-1]["steps"].append((action, reward))
        self.done[-1]["observations"].append(observation)
        self.done[-1]["end"] = "terminal" if terminated else "cut"

    def rows(self):
        """Observations, and (action, reward, mark), in their order."""
        observations, steps = [], []
        for trajectory in self.done:
            observations += trajectory["observations"]
            steps += [(action, reward, 1.0) for action, reward in trajectory["steps"]]
            steps += [(-1.0, 0.0, {"terminal": 2.0, "cut": 3.0}[trajectory["end"]])]
        return np.array(observations), np.array(steps)


def watkins_return(steps, values, greedy, gamma, trace_decay, i):
    """Mean of the n-step returns, weighed by λ, up to where an action was not greedy."""
    total, weight, rewards, power = 0.0, 1.0, 0.0, 1.0
    while True:
        rewards += power * steps[i, 1]
        power *= gamma
        i += 1
        worth = 0.0 if steps[i, 2] == 2.0 else values[i]
        n_step = rewards + power * worth
        if steps[i, 2] != 1.0 or steps[i, 0] != greedy[i]:
            return total + weight * n_step
        total += (1 - trace_decay) * weight * n_step
        weight *= trace_decay


def discounted_return(steps, gamma, i, after_cut=0.0):
    """Discounted return from row i to the end of its trajectory, and on if that was cut."""
    if steps[i, 2] != 1.0:
        return after_cut if steps[i, 2] == 3.0 else 0.0
    return steps[i, 1] + gamma * discounted_return(steps, gamma, i + 1, after_cut)


def prune_and_merge(masses, codevectors, metric, min_mass, below):
    """New masses and codevectors, and of which old cells each consists."""
    close = [[divergence(metric, x, y) < below for y in codevectors] for x in codevectors]
    left = {k: [k] for k in range(len(masses)) if masses[k] >= min_mass or k == masses.argmax()}
    masses, codevectors = list(masses), list(codevectors)
    for k in range(len(masses)):
        for other in range(k + 1, len(masses)):
            if k in left and other in left and close[k][other]:
                mass = masses[k] + masses[other]
                mean = masses[k] * codevectors[k] + masses[other] * codevectors[other]
                masses[k], codevectors[k] = mass, mean / mass
                left[k] += left.pop(other)[:1]
    kept = np.array([masses[k] for k in left])
    return kept / kept.sum(), np.array([codevectors[k] for k in left]), list(left.values())


def cell_values(diagram, models, width, x, n_nearest=3):
    """Nearest cell, and the value of each action by the nearest cells' models."""
    d = len(x)
    scores = diagram[:, 0] + diagram[:, 1:] @ x
    near = np.argsort(scores)[:n_nearest]
    weights = np.exp(-(scores[near] - scores[near[0]]) / width)
    values = [models[k, 0] + models[k, 1 : 1 + d] @ x + models[k, 1 + d :] for k in near]
    return near[0], np.average(values, axis=0, weights=weights)


def assign_three(points, codevectors, width):
    """Three nearest codevectors of each point, and their weights without the negligible ones."""
    distances = ((points[:, None] - codevectors) ** 2).sum(axis=2)
    cells = np.argsort(distances, axis=1)[:, :3]
    near = np.take_along_axis(distances, cells, axis=1)
    weights = np.exp(-(near - near[:, :1]) / width)
    weights /= weights.sum(axis=1, keepdims=True)
    return cells, np.where(weights > 1e-4, weights, 0.0)


def nearest_parts(actions, cells, parts):
    """Which v_kj is nearest to each action, in each of its cells."""
    gaps = ((actions[:, None, None] - parts[cells]) ** 2).sum(axis=3)
    return gaps.argmin(axis=2)


def action_codevectors(actions, common, cells, weights, goes_on, n_cells, prior):
    """In each cell: means of the actions nearest to the common v_j, which weigh ``prior``."""
    nearest = ((actions[:, None] - common) ** 2).sum(axis=2).argmin(axis=1)
    parts = np.empty((n_cells, *common.shape))
    for k in range(n_cells):
        w = np.where(cells == k, weights, 0.0).sum(axis=1) * goes_on
        for j, start in enumerate(common):
            own = nearest == j
            total = prior * start + (w[own, None] * actions[own]).sum(axis=0)
            parts[k, j] = total / (prior + w[own].sum())
    return parts


def blended_action(diagram, parts, width, x, j, n_nearest=3):
    """Mean of the nearest cells' j-th action codevectors, weighed as values are."""
    scores = diagram[:, 0] + diagram[:, 1:] @ x
    near = np.argsort(scores)[:n_nearest]
    weights = np.exp(-(scores[near] - scores[near[0]]) / width)
    return np.average(parts[near, j], axis=0, weights=weights)


def analysis_of_covariance(y, a, targets, w, c, n_actions, optimism, optimum, width):
    """Minimise Σ w (Y − q_a − <g, y − c>)² + m Σ (q_a − V)² + precision |g|²; returns q, g."""
    d = y.shape[1]
    z = np.column_stack([np.eye(n_actions)[a], y - c])
    matrix = z.T @ (w[:, None] * z)
    precision = 10 * width / d + 0.01 * np.diag(matrix)[n_actions:].mean() + 1e-6
    prior = np.concatenate([np.full(n_actions, optimism), np.full(d, precision)])
    centre = np.concatenate([np.full(n_actions, optimum), np.zeros(d)])
    solution = np.linalg.solve(matrix + np.diag(prior), z.T @ (w * targets) + prior * centre)
    return solution[:n_actions], solution[n_actions:]


def fitted_sweep(points, cells, weights, steps, theta, offsets, barred, old, first, decay, bounds):
    """Values of all rows, λ-returns of all steps (NaN elsewhere), and the sum of changes."""
    n, d = points.shape
    n_actions = theta.shape[1] - d
    q, liked = np.zeros((2, n, n_actions))
    for i in range(n):
        for k, w in zip(cells[i], weights[i], strict=True):
            own = offsets[k] + theta[k, n_actions:] @ points[i] + theta[k, :n_actions]
            q[i] += w * own
            liked[i] += w * (own - barred[k] if len(barred) else own)
    greedy = np.full(n, -1) if first else liked.argmax(axis=1)
    values = old if first else np.clip(q[np.arange(n), greedy], *bounds)
    values = np.where(steps[:, 2] == 2.0, 0.0, values)
    targets = [
        watkins_return(steps, values, greedy, *decay, i) if steps[i, 2] == 1.0 else np.nan
        for i in range(n)
    ]
    changes = np.abs(values - old)[steps[:, 2] != 2.0]
    return values, np.array(targets), changes.sum()


def rule(scores, outputs, x):
    """Cell and action, or units of a continuous one, of a rule at a point."""
    sums = [
        row[0] + sum(slope * part for slope, part in zip(row[1:], x, strict=True)) for row in scores
    ]
    cell = sums.index(max(sums))
    if outputs.shape[2] == 1:
        return cell, list(outputs[cell, :, 0]).index(1.0)
    return cell, [min(max(row[0] + row[1:] @ x, -1.0), 1.0) for row in outputs[cell]]


def decide(document, observation):
    """Action by an exported policy in JSON, as the document says."""
    if "table" in document:
        first, actions = document["table"]["first"], document["table"]["actions"]
        action = actions[int(observation[0]) - first]
        return action if "shape" in document["actions"] else document["actions"]["first"] + action
    diagram = np.array(document["diagram"])
    x = np.ravel(observation) - document["origin"]
    x = np.append(x, x**2)[: diagram.shape[1] - 1]
    scores = diagram[:, 0] + diagram[:, 1:] @ x
    cell = scores.argmin()
    if "clauses" in document:
        cell = _cell_within(document, scores, x)
    if "affine_actions" in document:
        rows = np.array(document["affine_actions"][cell])
        low, high, shape = (document["actions"][name] for name in ("low", "high", "shape"))
        return np.clip(rows[:, 0] + rows[:, 1:] @ x, low, high).reshape(shape)
    values = np.array(document["values"])
    if document["kind"].endswith("nearest cell"):
        return document["actions"]["first"] + values[cell].argmax()
    common = np.array(document["common"])
    near = np.argsort(scores, kind="stable")[: document["n_nearest"]]
    weights = np.exp((scores.min() - scores[near]) / document["width"])
    own = common[near, 0] + common[near, 1:] @ x
    blended = weights / weights.sum() @ (own[:, None] + values[near])
    chosen = (blended >= blended.max() - document["tie"] * abs(blended.max())).argmax()
    if "action_codevectors" not in document:
        return document["actions"]["first"] + chosen
    action = weights / weights.sum() @ np.array(document["action_codevectors"])[near, chosen]
    low, high, shape = (document["actions"][name] for name in ("low", "high", "shape"))
    return np.clip(action, low, high).reshape(shape)


def _cell_within(document, scores, x):
    """Cell, or clause, that decides in a document with clauses."""
    holding = [
        one for one in document["clauses"]
        if all(row[0] + np.dot(row[1:], x) > 0.0 for row in one["where"])
    ]  # fmt: skip
    forbidden = {one["forbids"] for one in holding if "forbids" in one}

    def allowed(cell):
        return "values" not in document or np.argmax(document["values"][cell]) not in forbidden

    said = [one["cell"] for one in holding if "cell" in one and allowed(one["cell"])]
    free = [k for k in range(len(scores)) if allowed(k)]
    return said[0] if said else min(free, key=lambda k: (scores[k], k))


def is_tie(document, observation, tolerance):
    """Whether numbers that an exported policy compares are equal up to a relative tolerance."""
    diagram = np.array(document["diagram"])
    x = np.ravel(observation) - document["origin"]
    x = np.append(x, x**2)[: diagram.shape[1] - 1]
    scores = diagram[:, 0] + diagram[:, 1:] @ x
    rank = document.get("n_nearest", 1)
    pairs = [np.sort(scores)[rank - 1 : rank + 1]]
    if "common" in document:
        models = np.column_stack([document["common"], document["values"]])
        pairs.append(np.sort(cell_values(diagram, models, document["width"], x, rank)[1])[-2:])
    return any(np.ptp(pair) <= tolerance * np.abs(pair).max() for pair in pairs if len(pair) == 2)


def distance_to_another_action(diagram, actions, x, scale, rng, starts=3):
    """Least distance, in units of 1/scale, to the cells whose action is not that of x's cell."""
    action = actions[(diagram[:, 0] + diagram[:, 1:] @ x).argmin()]
    best = np.inf
    for k in np.flatnonzero(actions != action):
        rows = np.delete(diagram, k, axis=0) - diagram[k]  # not negative in cell k
        normals, offsets = rows[:, 1:] / scale, rows[:, 0] + rows[:, 1:] @ x
        for _ in range(starts):
            inside = {
                "type": "ineq",
                "fun": lambda z, normals=normals, offsets=offsets: offsets + normals @ z,
                "jac": lambda z, normals=normals: normals,
            }
            found = minimize(
                lambda z: z @ z, rng.normal(size=len(x)), jac=lambda z: 2.0 * z, method="SLSQP",
                constraints=inside, options={"ftol": 1e-14, "maxiter": 500},
            )  # fmt: skip
            if (offsets + normals @ found.x).min() > -1e-7:
                best = min(best, np.sqrt(found.fun))
    return best


def grid_neighbourhood(n_rows, n_columns, width):
    """Periodic Gaussian around each place of a grid, shape (K, K), rows summing to 1."""
    shape = n_rows, n_columns
    rows = (som_pulls(k, shape, True, width) for k in range(n_rows * n_columns))
    return np.array([pulls / pulls.sum() for pulls in rows])


def gaussian_logs(point, weights, means, precisions):
    """Return log π_k + log N(x; μ_k, P_k) with full matrices P, shape (K,)."""
    logs = []
    for weight, mean, precision in zip(weights, means, precisions, strict=True):
        gap = point - mean
        logs.append(
            np.log(weight)
            + 0.5 * np.linalg.slogdet(precision)[1]
            - 0.5 * gap @ precision @ gap
            - 0.5 * len(gap) * np.log(2 * np.pi)
        )
    return np.array(logs)


def smoothed_loss(logs, grid):
    """Max-component log-likelihood (eq. 5 of SGD-GMM) of one sample, and its winner."""
    smoothed = [sum(g * log for g, log in zip(row, logs, strict=True)) for row in grid]
    return max(smoothed), int(np.argmax(smoothed))


def stochastic_em_step(block, weights, means, covariances, step):
    """One step of Cappé and Moulines on sufficient statistics, with full covariances."""
    precisions = np.linalg.inv(covariances)
    seconds = covariances + np.einsum("ki,kj->kij", means, means)
    sums = [(1 - step) * weights, None, None]
    sums[1] = sums[0][:, None] * means
    sums[2] = sums[0][:, None, None] * seconds
    for point in block:
        logs = gaussian_logs(point, weights, means, precisions)
        shares = np.exp(logs - logs.max())
        shares *= step / len(block) / shares.sum()
        sums[0] = sums[0] + shares
        sums[1] = sums[1] + shares[:, None] * point
        sums[2] = sums[2] + shares[:, None, None] * np.outer(point, point)
    means = sums[1] / sums[0][:, None]
    second = sums[2] / sums[0][:, None, None]
    return sums[0], means, second - np.einsum("ki,kj->kij", means, means)


def exemplar_response(kernel, x, z, bandwidth):
    """Kernel of height 1."""
    square = sum((a - b) ** 2 for a, b in zip(x, z, strict=True)) / bandwidth**2
    if kernel == "gaussian":
        return math.exp(-0.5 * square)
    if kernel == "epanechnikov":
        return max(1.0 - square, 0.0)
    return float(square <= 1.0)


def exemplar_objective(objective, gamma, penalty):
    """Objectives 1 to 4 of Nowozin and Bakir, with their signs turned."""
    n, least, mean = len(gamma), min(gamma), sum(gamma) / len(gamma)
    return {
        "margin": least,
        "log_likelihood": sum(math.log(g) for g in gamma) / n,
        "margin_variance": least - penalty / n * sum((g - least) ** 2 for g in gamma),
        "mean_variance": mean - penalty / n * sum((g - mean) ** 2 for g in gamma),
    }[objective]


def best_proportions(responses, objective, penalty):
    """The master problem by cvxpy and Clarabel; its value."""
    import cvxpy as cp

    n, m = responses.shape
    q, rho = cp.Variable(m, nonneg=True), cp.Variable()
    gamma = responses @ q
    value = {
        "margin": lambda: rho,
        "log_likelihood": lambda: cp.sum(cp.log(gamma)) / n,
        "margin_variance": lambda: rho - penalty / n * cp.sum_squares(gamma - rho),
        "mean_variance": lambda: (
            cp.sum(gamma) / n - penalty / n * cp.sum_squares(gamma - cp.sum(gamma) / n)
        ),
    }[objective]()
    limits = [cp.sum(q) == 1] + ([gamma >= rho] if objective.startswith("margin") else [])
    problem = cp.Problem(cp.Maximize(value), limits)
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    return problem.value


def mean_shift(points, prices, z, steps=1000):
    """Weighted mean shift with the Gaussian kernel, one start, to its end."""
    for _ in range(steps):
        weights = prices * np.exp(-0.5 * ((points - z) ** 2).sum(axis=1))
        z = weights @ points / weights.sum()
    return z


def exemplar_gap(points, exemplars, weights, candidates):
    """Logarithm of what the best candidate is worth beside a mixture of Gaussian kernels.

    With Σ q k for p, no weights of any candidates have a mean log density that is greater by more
    than log max_z mean_i k(x_i, z)/p(x_i). All in bandwidths.
    """

    def response(x, z):
        return exemplar_response("gaussian", x, z, 1.0)

    densities = [
        sum(q * response(x, z) for q, z in zip(weights, exemplars, strict=True)) for x in points
    ]
    worth = [
        sum(response(x, z) / p for x, p in zip(points, densities, strict=True)) / len(points)
        for z in candidates
    ]
    return math.log(max(worth))


def imagined_step(world, law, s, code):
    """A step in an imagined world as it is described, without noise: state, reward, end."""
    mean, scale, low, high = world.frame[:4]
    d = len(s)
    x = [(s[j] - mean[j]) / scale[j] for j in range(d)]
    columns = [1.0, *x]
    if world.laws.shape[2] > 1 + d:
        columns += [x[i] * x[k] for i in range(d) for k in range(i, d)]
    change = sum(code[c] * (world.laws[law, c].T @ columns) for c in range(len(code)))
    waves = world.waves[law].astype(float)
    for f in range(waves.shape[1]):
        turns = x @ waves[:d, f] + waves[d, f]
        change = change + parabolic_sine(turns) * waves[d + 1 :, f]
    if len(world.locals[law]):
        change = change + blended_change(world, law, np.array(x), code)
    after = s + change * scale
    for i, k in world.circles:
        turned = (s[i] + 1j * s[k]) * np.exp(1j * change[i])
        after[i], after[k] = turned.real, turned.imag
    after = np.minimum(np.maximum(after, low), high)
    for j in range(d):
        levels = [value for value in world.frame[4:, j] if not math.isnan(value)]
        if levels:
            after[j] = min(levels, key=lambda value: abs(value - after[j]))
    z = (after - mean) / scale
    if imagined_end(world, law, z):
        nearest_end = min(world.last, key=lambda row: float(((row[:d] - z) ** 2).sum()))
        return after, nearest_end[d], True
    at = world.frame[0], scale, world.circles
    features = list(code)
    for pairs in (False, True):
        if len(features) < len(world.rewards):
            features = reward_features(*at, world.hinges, s, code, after, world.boxed, pairs)
    least, most = world.bounds[:2]
    return after, min(max(float(np.dot(world.rewards, features)), least), most), False


def parabolic_sine(turns):
    """The sine of a number of turns, to .001: a parabola in each half, corrected by its square."""
    part = (turns + 0.5) % 1.0 - 0.5
    y = 8 * part - 16 * part * abs(part)
    return y * (0.775 + 0.225 * abs(y))


def blended_change(world, law, x, code):
    """What the laws of the three nearest cells add; those of weight below .001 have no say."""
    places, width = world.codevectors[law].T, world.widths[law]
    gaps = [float(((x - place) ** 2).sum()) for place in places]
    near = sorted(range(len(places)), key=lambda k: gaps[k])[:3]
    weights = [math.exp((gaps[near[0]] - gaps[k]) / width) for k in near]
    total = np.zeros(len(x))
    for k, weight in zip(near, weights, strict=True):
        if weight / sum(weights) >= 1e-3:
            for c in range(len(code)):
                own = world.locals[law][k, c].T @ [1.0, *(x - places[k])]
                total += weight / sum(weights) * code[c] * own
    return total


def imagined_end(world, law, z):
    """Whether an episode ends at a standardised observation."""
    if any(sign * (z[int(j)] - t) > 0 for j, sign, t in world.walls):
        return True
    if len(world.terms) == 0:
        return False
    z = [1.0, *z]
    weights = world.hazards[law]
    terms = zip(weights[:-1], world.terms, strict=True)
    return bool(sum(w * z[i] * z[k] for w, (i, k) in terms) > weights[-1])


def reward_features(mean, scale, circles, hinges, s, code, after, boxed, pairs):
    """What a reward is linear in, one after the other."""
    found = list(code)
    if boxed:
        found += [unit**2 for unit in code[1:]]
    z = np.concatenate([(s - mean) / scale, (after - mean) / scale])
    for unit in code[1:] if boxed else code:
        found += list(unit * z)
    found += [*z, *z**2]
    for state in (s, after):
        found += [math.atan2(state[k], state[i]) ** 2 for i, k in circles]
    found += [z[j] * z[k] for j in range(len(z) * pairs) for k in range(j + 1, len(z))]
    found += [abs(z[j] - h) for j in range(len(z)) for h in hinges[:2, j % len(s)]]
    for k in range(2, len(hinges), 2):  # a distance, then oblique hinges
        gaps = [hinges[k + 1] * (part - hinges[k]) for part in np.split(z, 2)]
        found += [math.sqrt(sum(gap**2)) if k == 2 else abs(sum(gap)) for gap in gaps]
    return found


def pcg32(seed, count, stream=54):
    """Random numbers as O'Neill (2014) writes them down, in 64 bits."""
    mask, increment = 2**64 - 1, 2 * stream + 1
    state = ((increment + seed) * 6364136223846793005 + increment) & mask
    found = []
    for _ in range(count):
        bits, turn = (((state >> 18) ^ state) >> 27) & (2**32 - 1), state >> 59
        found.append(((bits >> turn) | (bits << (-turn % 32))) & (2**32 - 1))
        state = (state * 6364136223846793005 + increment) & mask
    return found


def conditional_normal(point, mean, covariance):
    """Log density of what is observed of a point (the rest is NaN); mean and covariance given it.

    Of all features, those that are observed included.
    """
    known = ~np.isnan(point)
    inverse = np.linalg.inv(covariance[np.ix_(known, known)])
    gap = point[known] - mean[known]
    gain = covariance[:, known] @ inverse
    log = -0.5 * gap @ inverse @ gap + 0.5 * np.linalg.slogdet(inverse / (2 * np.pi))[1]
    return log, mean + gain @ gap, covariance - gain @ covariance[known]


def holed_em_step(point, weights, means, covariances, step, full):
    """As `stochastic_em_step`, of one point of which features are missing (NaN)."""
    parts = [conditional_normal(point, *one) for one in zip(means, covariances, strict=True)]
    logs = np.log(weights) + [log for log, _, _ in parts]
    shares = np.exp(logs - logs.max())
    shares *= step / shares.sum()
    found = []
    for k, (_, expected, spread) in enumerate(parts):
        old = (1 - step) * weights[k]
        weight = old + shares[k]
        mean = (old * means[k] + shares[k] * expected) / weight
        second = old * (covariances[k] + np.outer(means[k], means[k]))
        second += shares[k] * (spread + np.outer(expected, expected))
        covariance = second / weight - np.outer(mean, mean)
        found.append((weight, mean, covariance if full else np.diag(np.diag(covariance))))
    return tuple(np.array(column) for column in zip(*found, strict=True))


def partial_anneal(points, codevectors, temperature):
    """Annealing of one class with missing values (NaN), by sums over what was observed.

    Returns masses, codevectors and the mean of the distances times d over what is observed.
    """
    n, d = codevectors.shape
    masses, known = np.full(n, 1.0 / n), np.full((n, d), 1.0 / n)
    sums, distortion = known * codevectors, 0.0
    for t, x in enumerate(points):
        seen = ~np.isnan(x)
        squares = ((x - sums / known)[:, seen] ** 2).sum(axis=1)
        distortion += squares.min() * d / seen.sum() / len(points)
        shares = masses * np.exp(-(squares - squares.min()) / temperature)
        shares /= shares.sum()
        step = 1 / (1 + 0.9 * (t + n))
        masses = (1 - step) * masses + step * shares
        known, sums = (1 - step) * known, (1 - step) * sums
        known[:, seen] += step * shares[:, None]
        sums[:, seen] += step * shares[:, None] * x[seen]
    return masses, sums / known, distortion


def partial_som(points, codevectors, shape, rates, widths):
    """Let points with missing values (NaN) pull a map in what is observed; codevectors, winners."""
    codevectors, winners = codevectors.copy(), []
    for x, rate, width in zip(points, rates, widths, strict=True):
        seen = ~np.isnan(x)
        winners.append(int(((x - codevectors)[:, seen] ** 2).sum(axis=1).argmin()))
        pulls = som_pulls(winners[-1], shape, False, width)
        codevectors[:, seen] += rate * pulls[:, None] * (x - codevectors)[:, seen]
    return codevectors, winners


def mixture_sums(points, weights, shares, means, covariances):
    """What components with ``shares`` take of samples, one sample and one component at a time.

    Returns Σ w r, Σ w r (x - μ), Σ w r (x - μ)(x - μ)ᵀ and Σ w log p(x); what is missing (NaN) is
    expected by each component, and densities are of what is observed.
    """
    masses, moves = np.zeros(len(means)), np.zeros(np.shape(means))
    spreads, total = np.zeros(np.shape(covariances)), 0.0
    for x, weight in zip(points, weights, strict=True):
        parts = [conditional_normal(x, *one) for one in zip(means, covariances, strict=True)]
        densities = [share * math.exp(part[0]) for share, part in zip(shares, parts, strict=True)]
        densities = np.array(densities)
        total += weight * math.log(densities.sum())
        for k, (_, expected, spread) in enumerate(parts):
            gain, gap = weight * densities[k] / densities.sum(), expected - means[k]
            masses[k] += gain
            moves[k] += gain * gap
            spreads[k] += gain * (np.outer(gap, gap) + spread)
    return masses, moves, spreads, total


def mixture_em(points, weights, shares, means, covariances, passes, kind):
    """EM over all samples at once: full, diagonal, or one spherical covariance of all."""
    for _ in range(passes):
        masses, moves, spreads, _ = mixture_sums(points, weights, shares, means, covariances)
        steps = moves / masses[:, None]
        covariances = spreads / masses[:, None, None] - np.einsum("ki,kj->kij", steps, steps)
        shares, means = masses / masses.sum(), means + steps
        if kind != "full":
            covariances = np.array([np.diag(np.diag(one)) for one in covariances])
        if kind == "tied_spherical":
            variance = shares @ np.trace(covariances, axis1=1, axis2=2) / len(means[0])
            covariances = np.array([variance * np.eye(len(means[0])) for _ in shares])
    return shares, means, covariances


def middle_ranks(values):
    """Share of values that are less, and half of those that are equal, for each of them."""
    n = len(values)
    return [
        sum(1.0 if other < one else 0.5 * (other == one) for other in values) / n for one in values
    ]


def matrix_rslvq_cost(parameters, places, weights, labels, points, classes, shares, penalty):
    """Log loss of the classes' summed densities (Schneider et al. 2009), and of squares."""
    d = points.shape[1]
    omega, codevectors = parameters[: d * d].reshape(d, d), parameters[d * d :].reshape(-1, d)
    loss = penalty * np.sum(omega**2)
    for place, weight, codevector in zip(places, weights, codevectors, strict=True):
        loss += penalty * weight * np.sum((codevector - place) ** 2)
    for x, c, share in zip(points, classes, shares, strict=True):
        densities = [
            weight * np.exp(-(np.linalg.norm(omega @ (x - codevector)) ** 2))
            for weight, codevector in zip(weights, codevectors, strict=True)
        ]
        own = sum(density for density, k in zip(densities, labels, strict=True) if k == c)
        loss -= share * np.log(own / sum(densities) + 1e-6)
    return loss


def ridge_slopes(points, targets, weights, cells, n_cells):
    """Slopes of cells, drawn to those in common by the spread in cells: least squares of rows."""
    n, d = points.shape
    shares = np.sqrt(weights / weights.sum())

    def shortest(rows, right, steps):  # in units of the steps
        scale = np.sqrt(((steps * shares[:, None]) ** 2).sum(axis=0))
        scale[scale == 0.0] = 1.0
        return np.linalg.lstsq(rows / scale, right, rcond=1e-10)[0] / scale

    steps = points - shares**2 @ points
    rests = targets - shares**2 @ targets
    free = shortest(steps * shares[:, None], rests * shares, steps)
    common, total = free, weights.sum()
    if total < 3 * (np.linalg.matrix_rank(steps[weights > 0.0]) + 1):
        scale = np.sqrt(shares**2 @ steps**2)
        scale[scale == 0.0] = 1.0
        rows, right, tried = steps / scale * shares[:, None], rests * shares, []
        for penalty in np.geomspace(1e-4, 1e2, 19):
            hat = np.linalg.solve(rows.T @ rows + penalty * np.eye(d), rows.T)
            spare = 1.0 - (1.0 + np.trace(rows @ hat)) / total
            missed = ((right - rows @ hat @ right) ** 2).sum()
            tried.append((missed / max(spare, 1e-10) ** 2, penalty, hat @ right / scale))
        common = min(tried, key=lambda each: each[:2])[2]
    rests = rests - steps @ free
    gaps = points.copy()
    for k in range(n_cells):
        own = (cells == k) & (weights > 0.0)
        if own.any():
            gaps[cells == k] -= np.average(points[own], axis=0, weights=weights[own])
    slopes = np.tile(common, (n_cells, 1))
    for k in range(n_cells):
        own = (cells == k) & (weights > 0.0)
        if own.any():
            root = np.sqrt(weights[own])
            # |missed - rows s|^2 + (d + 2) |rooted s|^2, of the shortest s that there is.
            rows = np.vstack([gaps[own] * root[:, None], np.sqrt(d + 2) * gaps * shares[:, None]])
            right = np.concatenate([rests[own] * root, np.zeros(n)])
            slopes[k] += shortest(rows, right, gaps)
    return slopes


def joint_decision(cells, observation, shortlist=40, n_parts=8, step=0.25):
    """Greedy action in units, its value, and those of all levels, of cells of states and actions.

    ``cells`` has the arrays of a policy, or of its JSON.
    """
    origin, levels, transform, places, slopes, worth = (
        np.array(cells[name])
        for name in ("origin", "levels", "transform", "places", "slopes", "worth")
    )
    d = len(origin)
    inverse = np.linalg.pinv(transform[:, d:])

    def seen(action):
        return transform @ np.concatenate([observation - origin, action])

    def distances(action, some):
        return ((seen(action) - places[some]) ** 2).sum(axis=1)

    parts = np.clip((places - seen(np.zeros(levels.shape[1]))) @ inverse.T, -1.0, 1.0)
    away = [distances(part, [k])[0] for k, part in enumerate(parts)]
    near = np.argsort(away, kind="stable")[:shortlist]

    def value(action):
        gaps = distances(action, near)
        best = np.argsort(gaps, kind="stable")[: cells["n_nearest"]]
        weights = np.exp((gaps.min() - gaps[best]) / cells["width"])
        cell = near[best]
        planes = worth[cell] + (slopes[cell] * (seen(action) - places[cell])).sum(axis=1)
        return weights @ planes / weights.sum()

    best = max([*levels, *parts[near[:n_parts]]], key=value)
    for c in range(len(best)):
        moved = np.tile(best, (4, 1))
        moved[1:3, c] = np.clip(best[c] + np.array([-step, step]), -1.0, 1.0)
        middle, below, above = map(value, moved[:3])
        bend = 2.0 * middle - below - above
        if middle >= max(below, above) and bend > 0.0 and abs(best[c]) <= 1.0 - step:
            moved[3, c] += 0.5 * step * (above - below) / bend
        best = max(moved, key=value)
    return best, value(best), np.array([value(level) for level in levels])
