typedef struct {
    float features[ODA_NEAR][1 + ODA_FEATURES]; /* w_k, and w_k (x - m_k) */
    int32_t cells[ODA_NEAR]; /* the nearest */
    int32_t count;
} oda_blend;

typedef struct {
    uint64_t random; /* state of the generator */
    float values[ODA_CELLS][ODA_COLUMNS]; /* of the actions, then the slope */
    float traces[ODA_CELLS][ODA_COLUMNS];
    uint16_t steps_left[ODA_CELLS]; /* until its traces end */
    oda_blend here; /* of the latest observation */
    float next_value; /* Q', by which the latest target was made */
    uint32_t steps;
    int32_t action; /* the latest, from 0 */
} oda_learner;

/* The next 32 random bits. */
static inline uint32_t oda_random(oda_learner *learner)
{
    const uint64_t old = learner->random;
    const uint32_t bits = (uint32_t)(((old >> 18) ^ old) >> 27);
    const uint32_t turn = (uint32_t)(old >> 59);
    learner->random = old * UINT64_C(6364136223846793005) + 109u;
    return (bits >> turn) | (bits << ((32u - turn) & 31u));
}

/* Write the nearest cells of an observation, and their features. */
static inline void oda_look(const float obs[ODA_FEATURES], oda_blend *blend)
{
    float x[ODA_FEATURES];
    float weights[ODA_NEAR]; /* squared distances at first */
    float total = 0.0f;
    int32_t n = 0;
    for (int i = 0; i < ODA_FEATURES; ++i) {
        x[i] = 0.0f;
        for (int j = 0; j < ODA_FEATURES; ++j) {
            x[i] += oda_metric[i][j] * (obs[j] - oda_mean[j]);
        }
    }
    for (int32_t k = 0; k < ODA_CELLS; ++k) {
        float distance = 0.0f;
        for (int i = 0; i < ODA_FEATURES; ++i) {
            const float offset = x[i] - oda_codevectors[k][i];
            distance += offset * offset;
        }
        if (n < ODA_NEAR || distance < weights[n - 1]) {
            int32_t slot = n < ODA_NEAR ? n++ : n - 1;
            for (; slot > 0 && weights[slot - 1] > distance; --slot) {
                weights[slot] = weights[slot - 1];
                blend->cells[slot] = blend->cells[slot - 1];
            }
            weights[slot] = distance;
            blend->cells[slot] = k;
        }
    }
    const float nearest = weights[0];
    while (weights[n - 1] - nearest > ODA_CUT) {
        --n;
    }
    blend->count = n;
    for (int32_t j = 0; j < n; ++j) {
        weights[j] = expf((nearest - weights[j]) / ODA_TEMPERATURE);
        total += weights[j];
    }
    for (int32_t j = 0; j < n; ++j) {
        float *feature = blend->features[j];
        feature[0] = weights[j] / total;
        for (int i = 0; i < ODA_FEATURES; ++i) {
            feature[1 + i] = feature[0] * (x[i] - oda_codevectors[blend->cells[j]][i]);
        }
    }
}

/* The sum of features times values, which is Q, or times traces. */
static inline float oda_sum(
    const oda_learner *learner, const oda_blend *blend, int32_t action, int traced)
{
    float sum = 0.0f;
    for (int32_t j = 0; j < blend->count; ++j) {
        const float *row = (traced ? learner->traces : learner->values)[blend->cells[j]];
        sum += blend->features[j][0] * row[action];
        for (int i = 0; i < ODA_FEATURES; ++i) {
            sum += blend->features[j][1 + i] * row[ODA_ACTIONS + i];
        }
    }
    return sum;
}

static inline int32_t oda_best(const oda_learner *learner, const oda_blend *blend)
{
    int32_t best = 0;
    for (int32_t a = 1; a < ODA_ACTIONS; ++a) {
        if (oda_sum(learner, blend, a, 0) > oda_sum(learner, blend, best, 0)) {
            best = a;
        }
    }
    return best;
}

static inline int oda_greedy(const oda_learner *learner, const float obs[ODA_FEATURES])
{
    oda_blend blend;
    oda_look(obs, &blend);
    return ODA_FIRST_ACTION + (int)oda_best(learner, &blend);
}

static inline int32_t oda_explore(oda_learner *learner, const oda_blend *blend)
{
    const float elapsed = 1.0f + (float)learner->steps / ODA_EXPLORATION_DECAY;
    if ((float)(oda_random(learner) >> 8) * elapsed < ODA_EXPLORATION * 16777216.0f) {
        return (int32_t)(oda_random(learner) % ODA_ACTIONS);
    }
    return oda_best(learner, blend);
}

static inline void oda_init(oda_learner *learner, uint32_t seed, int learned)
{
    for (int32_t k = 0; k < ODA_CELLS; ++k) {
        for (int c = 0; c < ODA_COLUMNS; ++c) {
            const float value = c < ODA_ACTIONS ? ODA_OPTIMISM : 0.0f;
            learner->values[k][c] = learned ? oda_learned[k][c] : value;
        }
    }
    learner->steps = learned ? ODA_STEPS : 0;
    learner->random = (UINT64_C(109) + seed) * UINT64_C(6364136223846793005) + 109u;
}

static inline int oda_begin(oda_learner *learner, const float obs[ODA_FEATURES])
{
    for (int32_t k = 0; k < ODA_CELLS; ++k) {
        learner->steps_left[k] = 0;
        for (int c = 0; c < ODA_COLUMNS; ++c) {
            learner->traces[k][c] = 0.0f;
        }
    }
    oda_look(obs, &learner->here);
    learner->action = oda_explore(learner, &learner->here);
    learner->next_value = oda_sum(learner, &learner->here, learner->action, 0);
    return ODA_FIRST_ACTION + (int)learner->action;
}

/* True online TD(lambda); error is delta + Q - Q', and change Q - Q'. */
static inline void oda_update(oda_learner *learner, float error, float change)
{
    const oda_blend *here = &learner->here;
    const float elapsed = 1.0f + (float)learner->steps / ODA_STEP_SIZE_STEPS;
    float size = ODA_STEP_SIZE(elapsed);
    float norm = 0.0f;
    for (int32_t j = 0; j < here->count; ++j) {
        learner->steps_left[here->cells[j]] = ODA_TRACE_STEPS;
        for (int c = 0; c <= ODA_FEATURES; ++c) {
            norm += here->features[j][c] * here->features[j][c];
        }
    }
    size = size > ODA_MIN_STEP_SIZE ? size : ODA_MIN_STEP_SIZE;
    size /= norm > ODA_MIN_NORM ? norm : ODA_MIN_NORM;
    const float product = oda_sum(learner, here, learner->action, 1);
    const float fresh = size * (1.0f - ODA_TRACE_DECAY * product);
    const float gain = error * fresh - size * change;
    for (int32_t k = 0; k < ODA_CELLS; ++k) { /* traces of earlier steps */
        if (learner->steps_left[k] > 0) {
            const float keep = --learner->steps_left[k] > 0 ? ODA_TRACE_DECAY : 0.0f;
            for (int c = 0; c < ODA_COLUMNS; ++c) {
                learner->traces[k][c] *= keep;
                learner->values[k][c] += error * learner->traces[k][c];
            }
        }
    }
    for (int32_t j = 0; j < here->count; ++j) { /* and of this one */
        const int32_t k = here->cells[j];
        for (int c = 0; c <= ODA_FEATURES; ++c) {
            const int column = c == 0 ? (int)learner->action : ODA_ACTIONS - 1 + c;
            learner->traces[k][column] += fresh * here->features[j][c];
            learner->values[k][column] += gain * here->features[j][c];
        }
    }
}

static inline int oda_step(
    oda_learner *learner, const float obs[ODA_FEATURES], float reward, int terminated)
{
    const float value = oda_sum(learner, &learner->here, learner->action, 0);
    oda_blend next;
    oda_look(obs, &next);
    learner->steps += learner->steps < UINT32_MAX;
    const int32_t action = oda_explore(learner, &next);
    const float next_value = oda_sum(learner, &next, action, 0);
    const float target = terminated ? reward : reward + ODA_DISCOUNT * next_value;
    const float error = target - learner->next_value;
    if (!(error >= -ODA_LARGEST && error <= ODA_LARGEST)) { /* or not a number */
        return oda_begin(learner, obs);
    }
    oda_update(learner, error, value - learner->next_value);
    learner->next_value = next_value;
    learner->here = next;
    learner->action = action;
    return ODA_FIRST_ACTION + (int)action;
}

