// What moves in a report: the policy of its data, the world it was trained in, and a view of both.
// There are five parts: deciding, the nearest state that is treated otherwise, worlds, drawing, and
// the view. `oda` in the console has what decides and steps, so that all that is shown can be checked.
"use strict";

// Deciding ------------------------------------------------------------------------------------
// These are the steps that policy.how_to_decide lists, for every kind of policy.

const affine = (row, x) => {
  let sum = row[0];
  for (let j = 0; j < x.length; j++) sum += row[1 + j] * x[j];
  return sum;
};

const greatest = (values) => {
  let best = 0;
  for (let a = 1; a < values.length; a++) if (values[a] > values[best]) best = a;
  return best;
};

/** Number of what a cell does: an action from 0, or the cell's own where actions are affine. */
const choiceOf = (policy, cell) => (policy.values ? greatest(policy.values[cell]) : cell);

/** Whether scores are of squares, too: cells of a mixture, with curved borders. */
const isCurved = (policy) => policy.diagram[0].length > 1 + policy.origin.length;

/** Return {cell, values, choice, action}; an action is a number from 0, or an array. */
function decide(policy, observation) {
  const x = observation.map((value, j) => value - policy.origin[j]);
  if (isCurved(policy)) x.push(...x.map((value) => value * value));
  const scores = policy.diagram.map((row) => affine(row, x));
  if (policy.worth) return decideJointly(policy, x, scores);
  return policy.common ? decideTogether(policy, x, scores) : decideAlone(policy, x, scores);
}

function decideJointly(policy, x, scores) {
  const { transform, places, levels, step, actions } = policy;
  const d = x.length;
  const byAction = transform.map((row) => row.slice(d));
  const inverse = pseudoInverse(byAction);
  const idle = transform.map((row) => dot(row.slice(0, d), x));
  const at = (u) => idle.map((value, i) => value + dot(byAction[i], u));
  const away = (z, k) => z.reduce((sum, value, i) => sum + (value - places[k][i]) ** 2, 0);
  const parts = places.map((place) => {
    const gap = plus(place, idle, -1);
    return inverse.map((row) => clip(dot(row, gap), -1, 1));
  });
  const near = nearestCells(parts.map((part, k) => away(at(part), k)), policy.shortlist);
  const valueOf = (u) => {
    const z = at(u);
    const gaps = near.map((k) => away(z, k));
    const best = nearestCells(gaps, policy.n_nearest);
    const weights = best.map((j) => Math.exp((gaps[best[0]] - gaps[j]) / policy.width));
    const planes = best.map((j) => {
      const k = near[j];
      return policy.worth[k] + dot(policy.slopes[k], plus(z, places[k], -1));
    });
    return dot(weights, planes) / weights.reduce((sum, weight) => sum + weight, 0);
  };
  const tried = [...levels, ...near.slice(0, policy.n_parts).map((k) => parts[k])];
  const found = tried.map(valueOf);
  let value = found[greatest(found)];
  const u = [...tried[greatest(found)]];
  for (let c = 0; c < u.length; c++) {
    const [centre, middle] = [u[c], value];
    const valueWith = (part) => valueOf(u.map((own, i) => (i === c ? part : own)));
    const ends = [centre - step, centre + step].map((part) => clip(part, -1, 1));
    const values = ends.map(valueWith);
    values.forEach((end, i) => {
      if (end > value) [value, u[c]] = [end, ends[i]];
    });
    const bend = 2 * middle - values[0] - values[1];
    const inside = ends[0] === centre - step && ends[1] === centre + step;
    if (u[c] === centre && bend > 0 && inside) {
      const vertex = centre + (0.5 * step * (values[1] - values[0])) / bend;
      const top = valueWith(vertex);
      if (top > value) [value, u[c]] = [top, vertex];
    }
  }
  const gaps = levels.map((level) => norm(plus(level, u, -1)));
  const choice = gaps.indexOf(Math.min(...gaps));
  const values = levels.map(valueOf);
  values[choice] = value;
  const { low, high } = actions;
  const action = within(actions, u.map((own, i) => 0.5 * ((1 - own) * low[i] + (1 + own) * high[i])));
  return { cell: nearestCells(scores, 1)[0], values, choice, action };
}

/** (AᵀA)⁻¹Aᵀ of a matrix of full column rank, by Gauss and Jordan. */
function pseudoInverse(matrix) {
  const columns = matrix[0].map((_, c) => matrix.map((row) => row[c]));
  const rows = columns.map((one) => [...columns.map((other) => dot(one, other)), ...one]);
  rows.forEach((row, c) => {
    const pivot = row[c];
    row.forEach((value, i) => (row[i] = value / pivot));
    rows.forEach((other, r) => {
      const factor = other[c];
      if (r !== c) other.forEach((value, i) => (other[i] = value - factor * row[i]));
    });
  });
  return rows.map((row) => row.slice(rows.length));
}

function decideTogether(policy, x, scores) {
  const near = nearestCells(scores, policy.n_nearest);
  const weights = near.map((k) => Math.exp((scores[near[0]] - scores[k]) / policy.width));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  const blend = (of) => near.reduce((sum, k, i) => sum + (weights[i] / total) * of(k), 0);
  const common = blend((k) => affine(policy.common[k], x));
  const values = policy.values[0].map((_, a) => common + blend((k) => policy.values[k][a]));
  const top = values[greatest(values)];
  const choice = values.findIndex((value) => value >= top - policy.tie * Math.abs(top));
  const parts = policy.action_codevectors;
  const action = parts
    ? within(policy.actions, parts[0][choice].map((_, i) => blend((k) => parts[k][choice][i])))
    : choice;
  return { cell: near[0], values, choice, action };
}

function decideAlone(policy, x, scores) {
  const holds = (clause) => clause.where.every((row) => affine(row, x) > 0);
  const clauses = (policy.clauses ?? []).filter(holds);
  const forbidden = new Set(clauses.filter((one) => "forbids" in one).map((one) => one.forbids));
  const allowed = (cell) => !forbidden.has(choiceOf(policy, cell));
  let cell = clauses.find((one) => "cell" in one && allowed(one.cell))?.cell ?? -1;
  if (cell < 0)
    for (let k = 0; k < scores.length; k++)
      if ((forbidden.size === 0 || allowed(k)) && (cell < 0 || scores[k] < scores[cell])) cell = k;
  const choice = choiceOf(policy, cell);
  const rows = policy.affine_actions?.[cell];
  const action = rows ? within(policy.actions, rows.map((row) => affine(row, x))) : choice;
  return { cell, values: policy.values?.[cell] ?? [], choice, action, scores };
}

function nearestCells(scores, n) {
  const near = [];
  for (let k = 0; k < scores.length; k++) {
    let i = near.length;
    while (i > 0 && scores[k] < scores[near[i - 1]]) i--;
    if (i < n) near.splice(i, 0, k);
    if (near.length > n) near.pop();
  }
  return near;
}

const clip = (value, low, high) => Math.min(Math.max(value, low), high);
const within = (box, action) => action.map((value, i) => clip(value, box.low[i], box.high[i]));

/** What actions are compared by: values, or of a rule the greatest score of each action's cells. */
function compared(policy, decision, named) {
  if (named === "value" || !decision.scores) return decision.values;
  const best = Array(policy.values ? policy.values[0].length : policy.diagram.length).fill(-Infinity);
  decision.scores.forEach((score, k) => {
    const a = choiceOf(policy, k);
    best[a] = Math.max(best[a], -score);
  });
  return best;
}

// The nearest state that is treated otherwise --------------------------------------------------
// Distances are Euclidean in standard deviations: components times `scale`; those of scale 0 stay.

const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);
const norm = (a) => Math.sqrt(dot(a, a));
const unscaled = (step, scale) => step.map((value, j) => (scale[j] > 0 ? value / scale[j] : 0));
const plus = (a, b, factor = 1) => a.map((value, i) => value + factor * b[i]);

/** Return {point, distance, exact}, or null if no state is known that is treated otherwise. */
function nearestOther(policy, observation, scale) {
  const now = decide(policy, observation).choice;
  const straight = isCurved(policy) ? null : nearestCell(policy, observation, scale, now);
  if (!policy.common && !policy.clauses && !policy.worth) return straight && { ...straight, exact: true };
  const found = searched(policy, observation, scale, now, straight);
  return found && { ...found, exact: false };
}

/** The nearest point of a cell with another choice, as if the nearest cell decided alone. */
function nearestCell(policy, observation, scale, now) {
  const x = plus(observation, policy.origin, -1);
  const scores = policy.diagram.map((row) => affine(row, x));
  const slopes = policy.diagram.map((row) => unscaled(row.slice(1), scale));
  const cells = policy.diagram.map((_, k) => k);
  const own = cells.filter((k) => choiceOf(policy, k) === now);
  const others = cells.filter((k) => choiceOf(policy, k) !== now).map((n) => {
    const gaps = own.map((k) => scores[n] - scores[k]);
    const changes = own.map((k) => plus(slopes[n], slopes[k], -1));
    const bound = Math.max(0, ...gaps.map((gap, i) => (gap > 0 ? gap / norm(changes[i]) : 0)));
    return { gaps, changes, bound };
  });
  others.sort((a, b) => a.bound - b.bound);
  let best = null;
  for (const other of others) {
    if (best && other.bound >= best.distance) break;
    const step = leastStep(other.changes, other.gaps);
    if (step && (!best || norm(step) < best.distance)) best = { ...other, step, distance: norm(step) };
  }
  if (!best) return null;
  const margin = Math.max(1e-6 * best.distance, 1e-9); // a little beyond the boundary
  const moved = best.gaps.map((gap, i) => gap + margin * norm(best.changes[i]));
  const step = leastStep(best.changes, moved) ?? best.step;
  return { distance: best.distance, point: plus(observation, unscaled(step, scale)) };
}

/** Shortest z with gaps + slopes z <= 0, or null: Lawson and Hanson (1974), chapter 23. */
function leastStep(slopes, gaps) {
  const norms = slopes.map(norm);
  const flat = 1e-12 * Math.max(0, ...norms);
  if (gaps.some((gap, i) => norms[i] <= flat && gap > 0)) return null;
  const rows = gaps.map((_, i) => i).filter((i) => norms[i] > flat);
  const offsets = rows.map((i) => gaps[i] / norms[i]);
  const unit = Math.max(0, ...offsets);
  if (unit <= 0) return slopes[0].map(() => 0);
  const columns = rows.map((i, r) => [
    ...slopes[i].map((value) => -value / norms[i]),
    offsets[r] / unit,
  ]);
  const residual = leftByWeights(columns, [...slopes[0].map(() => 0), 1]);
  const last = residual.length - 1;
  if (dot(residual, residual) < 1e-12) return null;
  return residual.slice(0, last).map((value) => (-unit * value) / residual[last]);
}

/** What non-negative weights of the columns leave of an aim, with its sign turned. */
function leftByWeights(columns, aim) {
  let used = [];
  let weights = [];
  const rest = () => used.reduce((left, i, at) => plus(left, columns[i], -weights[at]), aim);
  for (let round = 0; round < 30 * columns.length + 30; round++) {
    const left = rest();
    const pulls = columns.map((column, i) => (used.includes(i) ? -Infinity : dot(column, left)));
    const next = greatest(pulls);
    if (!(pulls[next] > 1e-13)) break;
    used.push(next);
    weights.push(0);
    for (;;) {
      const wanted = leastSquares(used.map((i) => columns[i]), aim);
      const shares = wanted.map((to, i) => (to > 0 ? 1 : weights[i] / (weights[i] - to)));
      const share = Math.min(...shares.map((one) => (Number.isNaN(one) ? 0 : one)));
      weights = weights.map((from, i) => from + share * (wanted[i] - from));
      if (share === 1) break;
      const kept = used.map((_, i) => i).filter((i) => weights[i] > 1e-15 && shares[i] !== share);
      used = kept.map((i) => used[i]);
      weights = kept.map((i) => weights[i]);
      if (used.length === 0) break;
    }
  }
  return rest().map((value) => -value);
}

/** Weights of columns with the least squared error, by Gram and Schmidt. */
function leastSquares(columns, aim) {
  const axes = [];
  const parts = columns.map((column) => {
    let left = column;
    const row = axes.map((axis) => {
      const part = dot(axis, left);
      left = plus(left, axis, -part);
      return part;
    });
    const length = norm(left);
    axes.push(length > 1e-11 ? left.map((value) => value / length) : left.map(() => 0));
    return [...row, length > 1e-11 ? length : 1];
  });
  const weights = axes.map((axis) => dot(axis, aim));
  for (let i = columns.length - 1; i >= 0; i--) {
    for (let k = i + 1; k < columns.length; k++) weights[i] -= parts[k][i] * weights[k];
    weights[i] /= parts[i][i];
  }
  return weights;
}

/** The nearest found along lines: to codevectors, along a given way, and around the best. */
function searched(policy, observation, scale, now, straight) {
  const random = randomNumbers(1);
  const otherwise = (step) =>
    decide(policy, plus(observation, unscaled(step, scale))).choice !== now;
  const shortened = (step) => {
    for (let i = 1; i <= 16; i++) {
      if (!otherwise(step.map((value) => (value * i) / 16))) continue;
      let [low, high] = [(i - 1) / 16, i / 16];
      for (let halving = 0; halving < 20; halving++) {
        const middle = 0.5 * (low + high);
        if (otherwise(step.map((value) => value * middle))) high = middle;
        else low = middle;
      }
      return step.map((value) => value * high);
    }
    return null;
  };
  const shorter = (a, b) => (b && (!a || norm(b) < norm(a)) ? b : a);
  const way = (point) => plus(point, observation, -1).map((value, j) => 2 * value * scale[j]);
  const ways = policy.codevectors.map(way).sort((a, b) => norm(a) - norm(b)).slice(0, 24);
  if (straight) ways.push(way(straight.point));
  let best = ways.map(shortened).reduce(shorter, null);
  if (!best) return null;
  for (const spread of [10, 1, 0.5, 0.2, 0.1, 0.05, 0.02]) {
    const length = norm(best);
    for (let i = 0; i < 24; i++) {
      const wide = (spread * length) / Math.sqrt(best.length);
      const noise = best.map((value, j) => (scale[j] > 0 ? value + wide * random.normal() : 0));
      best = shorter(best, shortened(noise.map((value) => (value * length) / norm(noise))));
    }
  }
  return { distance: norm(best), point: plus(observation, unscaled(best, scale)) };
}

/** Uniform and normal numbers from a seed (mulberry32; Box and Muller). */
function randomNumbers(seed) {
  const uniform = () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  const normal = () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
  return { uniform, normal, between: (low, high) => low + (high - low) * uniform() };
}

// Worlds --------------------------------------------------------------------------------------
// Each steps as the class of Gymnasium that it is named after, with that object's constants `p`, in
// the order of oda_rl.envs. A step changes `state` in place and returns whether the episode ends.

const turned = (angle) => {
  const turn = 2 * Math.PI;
  return angle - turn * Math.floor((angle + Math.PI) / turn);
};

const CartPoleEnv = {
  names: ["cart position (m)", "cart velocity (m/s)", "pole angle (rad)", "pole angular velocity (rad/s)"],
  ranges: [[-2.4, 2.4], [-3, 3], [-0.21, 0.21], [-3, 3]],
  plane: [2, 3],
  rate: 50,
  ended: "the pole has fallen, or the cart has left its track",
  factors: { gravity: [0], "length of the pole": [3, 4] },
  pushes: { component: 3, size: 0.5, what: "the pole" },
  start: (random) => [0, 0, 0, 0].map(() => random.between(-0.05, 0.05)),
  look: (state) => state.map(Math.fround),
  back: (observation) => observation,
  step(p, state, action) {
    const [x, speed, angle, turning] = state;
    const force = action === 1 ? p[5] : -p[5];
    const [cosine, sine] = [Math.cos(angle), Math.sin(angle)];
    const push = (force + p[4] * (turning * turning) * sine - p[7] * Math.sign(speed)) / p[1];
    const hinge = (p[8] * turning) / p[4];
    const spin =
      (p[0] * sine - cosine * push - hinge) / (p[3] * (4 / 3 - (p[2] * (cosine * cosine)) / p[1]));
    const pull = push - (p[4] * spin * cosine) / p[1];
    state[1] = speed + p[6] * pull;
    state[3] = turning + p[6] * spin;
    state[0] = x + p[6] * (p[11] ? state[1] : speed);
    state[2] = angle + p[6] * (p[11] ? state[3] : turning);
    return Math.abs(state[0]) > p[9] || Math.abs(state[2]) > p[10];
  },
  draw(pen, p, state, faint) {
    const [x, y] = [pen.x((state[0] / p[9]) * 0.85), 0.8 * pen.height];
    const long = clip(p[3] / 0.5, 0.3, 1.6) * 0.38 * pen.height;
    if (!faint) pen.line([[pen.x(-0.85), y + 14], [pen.x(0.85), y + 14]], pen.soft, 2);
    pen.box(x - 30, y - 14, 60, 28, faint);
    const [tx, ty] = [x + Math.sin(state[2]) * long * 1.25, y - 14 - Math.cos(state[2]) * long * 1.25];
    pen.line([[x, y - 14], [tx, ty]], faint ? pen.soft : pen.strong, 8, faint);
    if (!faint) pen.dot(x, y - 14, 5);
  },
  arrow: (pen, p, state, action) => {
    const [x, y, way] = [pen.x((state[0] / p[9]) * 0.85), 0.8 * pen.height, action === 1 ? 1 : -1];
    pen.arrow(x + way * 34, y, x + way * 84, y);
  },
  grab(pen, p, state, x, y) {
    const hinge = 0.8 * pen.height - 14;
    if (y > hinge - 20) return { 0: clip(((x / pen.width) * 2 - 1) / 0.85, -1, 1) * p[9], 1: 0 };
    return { 2: clip(Math.atan2(x - pen.x((state[0] / p[9]) * 0.85), hinge - y), -p[10], p[10]), 3: 0 };
  },
};

const MountainCarEnv = {
  names: ["position", "velocity"],
  ranges: [[-1.2, 0.6], [-0.07, 0.07]],
  plane: [0, 1],
  rate: 30,
  ended: "the car is at the flag",
  factors: { gravity: [1], "force of the engine": [0] },
  pushes: { component: 1, size: 0.02, what: "the car" },
  start: (random) => [random.between(-0.6, -0.4), 0],
  look: (state) => state.map(Math.fround),
  back: (observation) => observation,
  step(p, state, action) {
    let [position, velocity] = state;
    velocity += (action - 1) * p[0] + Math.cos(3 * position) * -p[1];
    velocity = clip(velocity, -p[2], p[2]);
    position = clip(position + velocity, p[3], p[4]);
    if (position === p[3] && velocity < 0) velocity = 0;
    [state[0], state[1]] = [position, velocity];
    return position >= p[5] && velocity >= p[6];
  },
  place(pen, p, position) {
    const x = 0.06 * pen.width + ((position - p[3]) / (p[4] - p[3])) * 0.88 * pen.width;
    return [x, (0.86 - 0.36 * (Math.sin(3 * position) + 1)) * pen.height];
  },
  draw(pen, p, state, faint) {
    if (!faint) {
      const hill = [];
      for (let i = 0; i <= 100; i++) hill.push(this.place(pen, p, p[3] + ((p[4] - p[3]) * i) / 100));
      pen.line(hill, pen.soft, 3);
      const [fx, fy] = this.place(pen, p, p[5]);
      pen.line([[fx, fy], [fx, fy - 44], [fx + 20, fy - 36], [fx, fy - 28]], pen.strong, 3);
    }
    const [x, y] = this.place(pen, p, state[0]);
    pen.dot(x, y - 13, 12, faint);
  },
  arrow(pen, p, state, action) {
    const [x, y] = this.place(pen, p, state[0]);
    if (action !== 1) pen.arrow(x + (action - 1) * 16, y - 13, x + (action - 1) * 60, y - 13);
  },
  grab(pen, p, state, x) {
    const share = clip((x / pen.width - 0.06) / 0.88, 0, 1);
    return { 0: p[3] + share * (p[4] - p[3]), 1: 0 };
  },
};

const PendulumEnv = {
  names: ["angle, 0 upright (rad)", "angular velocity (rad/s)"],
  ranges: [[-Math.PI, Math.PI], [-8, 8]],
  plane: [0, 1],
  rate: 20,
  ended: "",
  factors: { gravity: [0], "length of the pendulum": [2] },
  pushes: { component: 1, size: 3, what: "the pendulum" },
  start: (random) => [random.between(-Math.PI, Math.PI), random.between(-1, 1)],
  look: (state) => [Math.cos(state[0]), Math.sin(state[0]), state[1]].map(Math.fround),
  back: (observation) => [Math.atan2(observation[1], observation[0]), observation[2]],
  step(p, state, action) {
    const torque = Math.fround(clip(action[0], -p[4], p[4]));
    const push = Math.fround(Math.fround(3 / (p[1] * (p[2] * p[2]))) * torque);
    const change = (((3 * p[0]) / (2 * p[2])) * Math.sin(state[0]) + push) * p[3];
    state[1] = clip(state[1] + change, -p[5], p[5]);
    state[0] += state[1] * p[3];
    return false;
  },
  draw(pen, p, state, faint) {
    const [x, y] = [pen.x(0), 0.5 * pen.height];
    const long = clip(p[2], 0.3, 1.25) * 0.36 * pen.height;
    const tip = [x + Math.sin(-state[0]) * long, y - Math.cos(state[0]) * long];
    pen.line([[x, y], tip], faint ? pen.soft : pen.strong, 10, faint);
    if (!faint) pen.dot(x, y, 6);
  },
  arrow(pen, p, state, action) {
    const size = action[0] / p[4];
    if (Math.abs(size) > 0.02) pen.turn(pen.x(0), 0.5 * pen.height, 0.44 * pen.height, -size);
  },
  grab: (pen, p, state, x, y) => ({ 0: Math.atan2(pen.x(0) - x, 0.5 * pen.height - y), 1: 0 }),
};

const AcrobotEnv = {
  names: [
    "angle 1, 0 hanging (rad)", "angle 2 (rad)",
    "angular velocity 1 (rad/s)", "angular velocity 2 (rad/s)",
  ],
  ranges: [1, 1, 4, 9].map((most) => [-most * Math.PI, most * Math.PI]),
  plane: [0, 2],
  rate: 15,
  ended: "the tip is above the line",
  factors: { gravity: [12], "length of the links": [3, 4, 5] },
  pushes: { component: 2, size: 1.5, what: "the upper link" },
  more: [9.8], // Gymnasium has gravity in its equations
  start: (random) => [0, 0, 0, 0].map(() => Math.fround(random.between(-0.1, 0.1))),
  look([a, b, da, db]) {
    return [Math.cos(a), Math.sin(a), Math.cos(b), Math.sin(b), da, db].map(Math.fround);
  },
  back: (seen) => [Math.atan2(seen[1], seen[0]), Math.atan2(seen[3], seen[2]), seen[4], seen[5]],
  slopes(p, [a, b, da, db], torque) {
    const [, m1, m2, l1, c1, c2, inertia] = p;
    const [cosine, sine] = [Math.cos(b), Math.sin(b)];
    const d1 = m1 * (c1 * c1) + m2 * (l1 * l1 + c2 * c2 + 2 * l1 * c2 * cosine) + inertia + inertia;
    const d2 = m2 * (c2 * c2 + l1 * c2 * cosine) + inertia;
    const phi2 = m2 * c2 * p[12] * Math.cos(a + b - Math.PI / 2);
    const phi1 =
      -m2 * l1 * c2 * (db * db) * sine - 2 * m2 * l1 * c2 * db * da * sine +
      (m1 * c1 + m2 * l1) * p[12] * Math.cos(a - Math.PI / 2) + phi2;
    let rest = torque + (d2 / d1) * phi1;
    if (p[9] === 0) rest -= m2 * l1 * c2 * (da * da) * sine;
    const second = (rest - phi2) / (m2 * (c2 * c2) + inertia - (d2 * d2) / d1);
    return [da, db, -(d2 * second + phi1) / d1, second];
  },
  step(p, state, action) {
    const torque = p[10] + action;
    const k1 = this.slopes(p, state, torque); // Runge and Kutta's method
    const k2 = this.slopes(p, plus(state, k1, p[0] / 2), torque);
    const k3 = this.slopes(p, plus(state, k2, p[0] / 2), torque);
    const k4 = this.slopes(p, plus(state, k3, p[0]), torque);
    const next = state.map((value, j) => value + (p[0] / 6) * (k1[j] + 2 * k2[j] + 2 * k3[j] + k4[j]));
    state[0] = turned(next[0]);
    state[1] = turned(next[1]);
    state[2] = clip(next[2], -p[7], p[7]);
    state[3] = clip(next[3], -p[8], p[8]);
    return -Math.cos(state[0]) - Math.cos(state[1] + state[0]) > 1;
  },
  joints(pen, p, state) {
    const [x, y, long] = [pen.x(0), 0.5 * pen.height, 0.22 * pen.height * clip(p[3], 0.4, 1.1)];
    const elbow = [x + Math.sin(state[0]) * long, y + Math.cos(state[0]) * long];
    const both = state[0] + state[1];
    return [[x, y], elbow, [elbow[0] + Math.sin(both) * long, elbow[1] + Math.cos(both) * long]];
  },
  draw(pen, p, state, faint) {
    const joints = this.joints(pen, p, state);
    if (!faint) {
      const height = 0.5 * pen.height - 0.22 * pen.height * clip(p[3], 0.4, 1.1);
      pen.line([[pen.x(-0.85), height], [pen.x(0.85), height]], pen.soft, 2);
    }
    pen.line(joints, faint ? pen.soft : pen.strong, 9, faint);
    if (!faint) for (const [x, y] of joints.slice(0, 2)) pen.dot(x, y, 6);
  },
  arrow(pen, p, state, action) {
    const torque = p[10] + action;
    const [x, y] = this.joints(pen, p, state)[1];
    if (torque !== 0) pen.turn(x, y, 26, torque);
  },
  grab(pen, p, state, x, y) {
    const [[hx, hy], [ex, ey]] = this.joints(pen, p, state);
    const near = Math.hypot(x - hx, y - hy) < 0.24 * pen.height;
    if (near) return { 0: Math.atan2(x - hx, y - hy), 2: 0, 3: 0 };
    return { 1: turned(Math.atan2(x - ex, y - ey) - state[0]), 2: 0, 3: 0 };
  },
};

const worlds = { AcrobotEnv, BartoCartPoleEnv: CartPoleEnv, CartPoleEnv, MountainCarEnv, PendulumEnv };

/** Constants of a world with some of them multiplied, by the names in its `factors`. */
function disturbed(world, parameters, factors) {
  const p = [...parameters, ...(world.more ?? [])];
  for (const [name, slots] of Object.entries(world.factors))
    for (const slot of slots) p[slot] *= factors[name] ?? 1;
  return p;
}

// Drawing -------------------------------------------------------------------------------------

// Okabe and Ito's colours, which people with colour-blindness can tell apart.
const COLORS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999"];

/** A canvas as sharp as the screen, with what worlds draw by. */
function penOf(canvas) {
  const style = getComputedStyle(canvas);
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  const ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.lineCap = context.lineJoin = "round";
  const [strong, soft, accent] = ["--ink", "--soft", "--accent"].map((name) => style.getPropertyValue(name));
  const stroke = (color, thick, dashed = false) => {
    Object.assign(context, { strokeStyle: color, lineWidth: dashed ? 2 : thick });
    context.setLineDash(dashed ? [5, 6] : []);
    context.stroke();
    context.setLineDash([]);
  };
  const path = (points) => {
    context.beginPath();
    for (const [x, y] of points) context.lineTo(x, y);
  };
  const head = (x, y, angle) => {
    const wing = (by) => [x - 10 * Math.cos(angle + by), y - 10 * Math.sin(angle + by)];
    path([wing(0.5), [x, y], wing(-0.5)]);
    stroke(accent, 4);
  };
  return {
    context, width, height, strong, soft, accent,
    x: (share) => 0.5 * width * (1 + share),
    line(points, color, thick, dashed) {
      path(points);
      stroke(color, thick, dashed);
    },
    box(x, y, w, h, faint) {
      path([[x, y], [x + w, y], [x + w, y + h], [x, y + h], [x, y]]);
      context.fillStyle = style.getPropertyValue("--panel");
      if (!faint) context.fill();
      stroke(faint ? soft : strong, 3, faint);
    },
    dot(x, y, radius, faint) {
      context.beginPath();
      context.arc(x, y, radius, 0, 2 * Math.PI);
      context.fillStyle = strong;
      if (faint) stroke(soft, 2, true);
      else context.fill();
    },
    arrow(x0, y0, x1, y1) {
      path([[x0, y0], [x1, y1]]);
      stroke(accent, 4);
      head(x1, y1, Math.atan2(y1 - y0, x1 - x0));
    },
    turn(x, y, radius, size) { // clockwise if the size is positive
      const [from, to] = [-Math.PI / 2, -Math.PI / 2 + clip(size, -1, 1) * 1.4];
      context.beginPath();
      context.arc(x, y, radius, from, to, size < 0);
      stroke(accent, 4);
      head(x + radius * Math.cos(to), y + radius * Math.sin(to), to + (Math.sign(size) * Math.PI) / 2);
    },
  };
}

/** Red, green and blue of a colour such as #0072b2. */
const channels = (color) => [1, 3, 5].map((i) => parseInt(color.slice(i, i + 2), 16));

// The view ------------------------------------------------------------------------------------

const short = (value) => (Number.isFinite(value) ? String(+value.toPrecision(4)) : value > 0 ? "∞" : "never");
const element = (id) => document.getElementById(id);

/** Make an element; attributes are set as properties. */
function made(tag, properties = {}, children = []) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

/** A policy in its world: what is going on is in `state`, and every change ends in `show`. */
class View {
  constructor(report, policy) {
    Object.assign(this, { report, policy, world: worlds[report.world.kind] });
    this.random = randomNumbers(Number(new URLSearchParams(location.search).get("seed")) || 1);
    this.factors = {};
    this.noise = 0;
    this.running = !matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.held = false;
    this.map = { due: 0 };
    this.other = { due: 0 };
    this.build();
    this.restart();
    addEventListener("resize", () => this.show());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.show());
    this.last = performance.now();
    requestAnimationFrame((now) => this.frame(now));
  }

  get parameters() {
    return disturbed(this.world, this.report.world.parameters, this.factors);
  }

  restart() {
    this.state = this.world.start(this.random);
    [this.steps, this.over] = [0, false];
    this.say("");
    this.show();
  }

  /** What the policy sees: the state, and noise if there is some. */
  seen() {
    const exact = this.world.look(this.state);
    const spread = this.report.scale.map((scale) => (scale > 0 ? this.noise / scale : 0));
    return exact.map((value, j) => value + (spread[j] ? spread[j] * this.random.normal() : 0));
  }

  /** The environment's action for what a policy has decided. */
  performed(action) {
    return Array.isArray(action) ? action : this.report.world.choices?.[action] ?? action;
  }

  /** Take steps without showing them; return how many there have been since the start. */
  run(steps) {
    const p = this.parameters;
    for (let i = 0; i < steps && !this.over; i++) {
      const { action } = decide(this.policy, this.seen());
      this.over = this.world.step(p, this.state, this.performed(action));
      this.steps += 1;
    }
    if (this.over) this.say(`After ${this.steps} steps ${this.world.ended}. Restart begins anew.`);
    return this.steps;
  }

  push(way) {
    const { component, what } = this.world.pushes;
    this.state[component] += way * Number(element("push-size").value);
    this.say(`${what} was pushed ${way < 0 ? "left" : "right"} after ${this.steps} steps.`);
    this.show();
  }

  say(text) {
    element("status").textContent = text;
  }

  frame(now) {
    const due = Math.floor(((now - this.last) * this.world.rate) / 1000);
    if (due > 0) {
      this.last = due > 10 ? now : this.last + (1000 * due) / this.world.rate;
      if (this.running && !this.held && !this.over) {
        this.run(Math.min(due, 10));
        this.show(now);
      }
    }
    requestAnimationFrame((next) => this.frame(next));
  }

  // What is shown -----------------------------------------------------------------------------

  /** Show the present state; with a time, what takes long is left for later. */
  show(now = Infinity) {
    const observation = this.world.look(this.state);
    const decision = decide(this.policy, observation);
    this.showOther(observation, decision, now);
    this.showMap(now);
    this.drawScene(decision);
    this.showNumbers(observation, decision);
  }

  /** Do what takes long at most a fourth of the time. */
  sparingly(task, now, work) {
    if (now < task.due) return;
    const begun = performance.now();
    work();
    task.took = performance.now() - begun;
    task.due = performance.now() + 3 * task.took;
  }

  showOther(observation, decision, now) {
    const search = () => {
      this.other.found = nearestOther(this.policy, observation, this.report.scale);
      this.other.from = observation;
    };
    this.sparingly(this.other, now, search);
    let found = this.other.found;
    let there = found && decide(this.policy, found.point);
    if (found && there.choice === decision.choice) { // the state it came from had that action
      search();
      found = this.other.found;
      there = found && decide(this.policy, found.point);
    }
    element("other").textContent = !found
      ? "No state with another action is known."
      : `The nearest ${found.exact ? "" : "known "}state with another action (${this.word(there)}) ` +
        `is ${short(found.distance)} standard deviations away.`;
    this.rows.observation.forEach((cells, j) => {
      cells[1].textContent = short(observation[j]);
      const change = found ? found.point[j] - this.other.from[j] : 0;
      const matters = found && Math.abs(change) * this.report.scale[j] > 1e-3 * found.distance;
      cells[2].textContent = matters ? (change > 0 ? "+" : "−") + short(Math.abs(change)) : "";
    });
  }

  /** Say what is done, in words. */
  word({ choice, action }) {
    if (!Array.isArray(action)) return this.policy.actions.names[choice];
    const { low, high, names } = this.policy.actions;
    const digits = low.map((a, i) => Math.round(2.5 - Math.log10(high[i] - a))); // of the range
    const text = (value, i) => value.toFixed(Math.max(0, Math.min(20, digits[i])));
    return action.map((value, i) => `${names[i]} ${text(value, i)}`).join(", ");
  }

  showNumbers(observation, decision) {
    element("action").textContent = this.word(decision);
    element("steps").textContent = `step ${this.steps}`;
    element("cell").textContent = `cell ${decision.cell} of ${this.policy.codevectors.length}`;
    const values = compared(this.policy, decision, this.report.value_name);
    const finite = values.filter(Number.isFinite);
    const [low, high] = [Math.min(...finite), Math.max(...finite)];
    this.rows.values.forEach(([row, bar, number], a) => {
      row.classList.toggle("taken", a === decision.choice);
      const known = Number.isFinite(values[a]) && high > low;
      bar.value = known ? 0.1 + (0.9 * (values[a] - low)) / (high - low) : 0;
      number.textContent = short(values[a]);
    });
    this.world.names.forEach((_, j) => {
      const [input, output] = this.rows.state[j];
      if (document.activeElement !== input || this.running) input.value = this.shown(j);
      output.textContent = short(this.shown(j));
    });
    if (this.row) this.row.classList.remove("now");
    this.row = document.querySelector(`#cells tr[data-cell="${decision.cell}"]`);
    if (this.row) this.row.classList.add("now");
  }

  /** A component of the state, as sliders and the map have it: angles within one turn. */
  shown(j) {
    const [low, high] = this.world.ranges[j];
    return high === Math.PI ? turned(this.state[j]) : clip(this.state[j], low, high);
  }

  drawScene(decision) {
    const pen = penOf(element("scene"));
    const p = this.parameters;
    const found = this.other.found;
    if (found) this.world.draw(pen, p, this.world.back(found.point), true);
    this.world.draw(pen, p, this.state, false);
    this.world.arrow(pen, p, this.state, this.performed(decision.action));
  }

  // The map: what is done in a plane of the state, the rest of which is as it is ----------------

  showMap(now) {
    const canvas = element("map");
    const size = now === Infinity && this.map.took < 15 ? [240, 180] : [120, 90];
    this.sparingly(this.map, now, () => (this.map.picture = this.pictured(...size)));
    const pen = penOf(canvas);
    pen.context.drawImage(this.map.picture, 0, 0, pen.width, pen.height);
    const [x, y] = this.onMap(this.state, pen);
    if (this.other.found) {
      const [ox, oy] = this.onMap(this.world.back(this.other.found.point), pen);
      pen.line([[x, y], [ox, oy]], pen.strong, 2, true);
      pen.dot(ox, oy, 5);
    }
    pen.context.beginPath();
    pen.context.arc(x, y, 8, 0, 2 * Math.PI);
    Object.assign(pen.context, { fillStyle: "#fff", strokeStyle: "#000", lineWidth: 3 });
    pen.context.fill();
    pen.context.stroke();
  }

  onMap(state, pen) {
    return this.plane.map((j, axis) => {
      const [low, high] = this.world.ranges[j];
      const value = high === Math.PI ? turned(state[j]) : clip(state[j], low, high);
      const share = (value - low) / (high - low);
      return axis === 0 ? share * pen.width : (1 - share) * pen.height;
    });
  }

  /** A picture of what is done, with lines where that changes, and fainter ones between cells. */
  pictured(width, height) {
    const picture = made("canvas", { width, height });
    const context = picture.getContext("2d");
    const image = context.createImageData(width, height);
    const state = [...this.state];
    const [[xLow, xHigh], [yLow, yHigh]] = this.plane.map((j) => this.world.ranges[j]);
    let above = [];
    for (let i = 0; i < height; i++) {
      const row = [];
      for (let k = 0; k < width; k++) {
        state[this.plane[0]] = xLow + ((k + 0.5) / width) * (xHigh - xLow);
        state[this.plane[1]] = yHigh - ((i + 0.5) / height) * (yHigh - yLow);
        const found = decide(this.policy, this.world.look(state));
        row.push(found);
        const beside = [row[k - 1], above[k]].filter(Boolean);
        let color = this.tint(found);
        if (beside.some((one) => one.choice !== found.choice)) color = [30, 30, 30];
        else if (beside.some((one) => one.cell !== found.cell)) color = color.map((one) => 0.82 * one);
        image.data.set([...color, 255], 4 * (i * width + k));
      }
      above = row;
    }
    context.putImageData(image, 0, 0);
    return picture;
  }

  /** Colour of an action: its own, or of a continuous one between those of its bounds. */
  tint({ choice, action }) {
    let color = channels(COLORS[(choice ?? 0) % COLORS.length]);
    if (Array.isArray(action)) {
      const { low, high } = this.policy.actions;
      const share = (action[0] - low[0]) / (high[0] - low[0] || 1);
      const [from, to] = [channels(COLORS[0]), channels(COLORS[1])];
      color = from.map((value, i) => value + share * (to[i] - value));
    }
    return color.map((value) => 0.6 * value + 0.4 * 255);
  }

  // Controls ------------------------------------------------------------------------------------

  build() {
    this.plane = [...this.world.plane];
    element("live").hidden = false;
    element("run").onclick = () => this.toggle();
    element("one-step").onclick = () => {
      this.pause();
      this.run(1);
      this.show();
    };
    element("restart").onclick = () => this.restart();
    element("push-left").onclick = () => this.push(-1);
    element("push-right").onclick = () => this.push(1);
    const { size, what } = this.world.pushes;
    const slider = element("push-size");
    Object.assign(slider, { min: 0, max: 3 * size, step: size / 20, value: size });
    slider.oninput = () => (element("push-said").textContent = short(slider.valueAsNumber));
    slider.oninput();
    element("push-what").textContent = `Push ${what}`;
    this.rows = { values: [], observation: [], state: [] };
    this.buildDisturbances();
    this.buildState();
    this.buildValues();
    this.buildPlane();
    this.dragged(element("scene"), (x, y) => {
      const moved = this.world.grab(penOf(element("scene")), this.parameters, this.state, x, y);
      for (const [j, value] of Object.entries(moved)) this.state[j] = value;
    });
    this.dragged(element("map"), (x, y, canvas) => {
      const shares = [x / canvas.clientWidth, 1 - y / canvas.clientHeight];
      this.plane.forEach((j, axis) => this.move(j, shares[axis]));
    });
    element("map").onkeydown = (event) => this.steer(event);
    this.toggle(this.running);
  }

  /** A slider with its name and its number; `changed` returns what the number says. */
  slider(into, name, range, value, changed) {
    const [low, high, step] = range;
    const input = made("input", { type: "range", min: low, max: high, step, value });
    input.setAttribute("value", value);
    const output = made("output");
    input.oninput = () => (output.textContent = changed(input.valueAsNumber));
    into.append(made("label", {}, [made("span", { textContent: name }), input, output]));
    output.textContent = changed(value);
    return [input, output];
  }

  buildDisturbances() {
    const into = element("disturbances");
    for (const name of Object.keys(this.world.factors))
      this.slider(into, name, [0.2, 3, 0.05], 1, (factor) => {
        this.factors[name] = factor;
        if (this.state) this.show();
        return `× ${short(factor)}`;
      });
    this.slider(into, "noise on the observation", [0, 1, 0.01], 0, (noise) => {
      this.noise = noise;
      return `${short(noise)} std`;
    });
  }

  buildState() {
    this.world.names.forEach((name, j) => {
      const [low, high] = this.world.ranges[j];
      const row = this.slider(element("state"), name, [low, high, "any"], 0, (value) => {
        if (this.state) {
          this.pause();
          this.state[j] = value;
          this.changed();
        }
        return short(value);
      });
      row[0].step = (high - low) / 200;
      this.rows.state.push(row);
    });
  }

  buildValues() {
    const { policy, report } = this;
    const named = policy.levels?.map((_, a) => `level ${a}`) ?? policy.actions.names ?? policy.diagram.map((_, k) => `cell ${k}`);
    const many = policy.values ? policy.values[0].length : policy.diagram.length;
    const shown = policy.action_codevectors ? [] : Array.from({ length: Math.min(many, 12) }, (_, a) => a);
    for (const a of shown) {
      const bar = made("meter", { min: 0, max: 1 });
      bar.setAttribute("aria-label", `${report.value_name} of ${named[a]}`);
      const number = made("td");
      const chip = policy.actions.low ? "" : this.chip({ choice: a, action: a });
      const head = made("th", { scope: "row" }, [chip, named[a]]);
      const row = made("tr", {}, [head, made("td", {}, [bar]), number]);
      element("values").append(row);
      this.rows.values.push([row, bar, number]);
    }
    if (policy.actions.low) {
      const { low, high, names } = policy.actions;
      element("legend").append(
        this.chip({ action: low }), `${names[0]} ${short(low[0])}`,
        this.chip({ action: high }), short(high[0]),
      );
    }
    for (const name of policy.observation.names) {
      const head = made("th", { scope: "row", textContent: name });
      const cells = [head, made("td"), made("td")];
      element("changes").append(made("tr", {}, cells));
      this.rows.observation.push(cells);
    }
  }

  /** A piece of the colour that an action has on the map. */
  chip(decision) {
    const chip = made("span", { className: "chip" });
    chip.style.background = `rgb(${this.tint(decision)})`;
    return chip;
  }

  buildPlane() {
    ["plane-x", "plane-y"].forEach((id, axis) => {
      const choice = element(id);
      this.world.names.forEach((name, j) => choice.append(made("option", { value: j, textContent: name })));
      choice.value = this.plane[axis];
      choice.onchange = () => {
        const taken = Number(choice.value);
        if (this.plane[1 - axis] === taken) this.plane[1 - axis] = this.plane[axis];
        this.plane[axis] = taken;
        ["plane-x", "plane-y"].forEach((one, i) => (element(one).value = this.plane[i]));
        this.show();
      };
    });
  }

  /** Let a pointer move the state while it is down; the world stands still meanwhile. */
  dragged(canvas, moved) {
    const follow = (event) => {
      if (!this.held) return;
      const box = canvas.getBoundingClientRect();
      moved(event.clientX - box.left, event.clientY - box.top, canvas);
      this.changed();
    };
    canvas.onpointerdown = (event) => {
      this.held = true;
      canvas.setPointerCapture(event.pointerId);
      follow(event);
    };
    canvas.onpointermove = follow;
    canvas.onpointerup = canvas.onpointercancel = () => (this.held = false);
  }

  /** Move a component of the state to a share of its range. */
  move(j, share) {
    const [low, high] = this.world.ranges[j];
    this.state[j] = low + clip(share, 0, 1) * (high - low);
  }

  steer(event) {
    const ways = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowDown: [1, -1], ArrowUp: [1, 1] };
    const way = ways[event.key];
    if (!way) return;
    event.preventDefault();
    this.pause();
    const j = this.plane[way[0]];
    const [low, high] = this.world.ranges[j];
    this.move(j, (this.shown(j) - low) / (high - low) + (way[1] * (event.shiftKey ? 10 : 1)) / 100);
    this.changed();
  }

  /** The state was moved by hand: what has ended goes on. */
  changed() {
    if (this.over) [this.steps, this.over] = [0, false];
    this.say("");
    this.show();
  }

  pause() {
    if (this.running) this.toggle(false);
  }

  toggle(running = !this.running) {
    if (running && this.over) this.restart();
    this.running = running;
    element("run").textContent = running ? "Pause" : "Run";
  }
}

const report = JSON.parse(element("report").textContent);
const policy = JSON.parse(report.policy);
globalThis.oda = { decide, disturbed, nearestOther, policy, report, worlds };
if (report.world) oda.view = new View(report, policy);
