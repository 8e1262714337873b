typedef struct {
    uint64_t random; /* state of the generator */
    float values[ODA_CELLS][ODA_ACTIONS];
    float step_sizes[ODA_CELLS][ODA_ACTIONS]; /* of the latest updates */
    float traces[ODA_CELLS][ODA_ACTIONS];
    uint32_t updates[ODA_CELLS][ODA_ACTIONS];
    uint32_t steps; /* since learning began, the last time from nothing */
    uint32_t all_steps;
    uint32_t first_episodes; /* that ended in the first ODA_FIRST_STEPS steps; at least 1 */
    uint32_t best_at; /* all steps after which no return was greater */
    float first_return; /* mean of those episodes */
    float best_return;
    int32_t cell, action, greedy; /* of the latest oda_act; actions count from 0 */
    float episode_return;
    int32_t streak; /* of episodes that succeed, or minus that of others */
    int32_t resting; /* whether the latest episodes succeeded; then nothing changes */
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

/* The step size of the n-th update, n > 0. */
static inline float oda_step_size(uint32_t n)
{
    float rest = (float)n;
    float size = 1.0f;
    float sum = oda_power[ODA_DEGREE];
    while (rest >= 2.0f) {
        rest *= 0.5f;
        size *= ODA_HALVED;
    }
    rest = 2.0f * rest - 3.0f;
    for (int i = ODA_DEGREE - 1; i >= 0; --i) {
        sum = sum * rest + oda_power[i];
    }
    size *= sum;
    return size < ODA_MIN_STEP_SIZE ? ODA_MIN_STEP_SIZE : size;
}

static inline int32_t oda_cell(const float obs[ODA_FEATURES])
{
#ifdef ORIGIN
    float x[ODA_FEATURES];
    for (int j = 0; j < ODA_FEATURES; ++j) {
        x[j] = obs[j] - oda_origin[j];
    }
#else
    const float *x = obs;
#endif
    int32_t nearest = 0;
    float least = 0.0f;
    for (int32_t k = 0; k < ODA_CELLS; ++k) {
        float score = oda_diagram[k][0];
        for (int j = 0; j < ODA_FEATURES; ++j) {
            score += oda_diagram[k][1 + j] * x[j];
        }
        if (k == 0 || score < least - ODA_TIE) {
            least = score;
            nearest = k;
        }
    }
    return nearest;
}

static inline int32_t oda_best(const oda_learner *learner, int32_t cell)
{
    int32_t best = 0;
    for (int32_t a = 1; a < ODA_ACTIONS; ++a) {
        if (learner->values[cell][a] > learner->values[cell][best]) {
            best = a;
        }
    }
    return best;
}

static inline void oda_clear_traces(oda_learner *learner)
{
    for (int k = 0; k < ODA_CELLS; ++k) {
        for (int a = 0; a < ODA_ACTIONS; ++a) {
            learner->traces[k][a] = 0.0f;
        }
    }
}

/* Forget all that was learned; the generator goes on. */
static inline void oda_forget(oda_learner *learner)
{
    for (int k = 0; k < ODA_CELLS; ++k) {
        for (int a = 0; a < ODA_ACTIONS; ++a) {
            learner->values[k][a] = 0.0f;
            learner->step_sizes[k][a] = 0.0f;
            learner->updates[k][a] = 0;
        }
    }
    oda_clear_traces(learner);
    learner->steps = 0;
    learner->streak = learner->resting = 0;
    learner->episode_return = 0.0f;
}

static inline void oda_init(oda_learner *learner, uint32_t seed)
{
    oda_forget(learner);
    learner->all_steps = learner->first_episodes = learner->best_at = 0;
    learner->first_return = 0.0f;
    learner->best_return = -ODA_LARGEST;
    learner->random = (UINT64_C(109) + seed) * UINT64_C(6364136223846793005) + 109u;
    learner->cell = learner->action = learner->greedy = 0;
}

static inline int oda_greedy(const oda_learner *learner, const float obs[ODA_FEATURES])
{
    return ODA_FIRST_ACTION + (int)oda_best(learner, oda_cell(obs));
}

static inline int oda_act(oda_learner *learner, const float obs[ODA_FEATURES])
{
    learner->cell = oda_cell(obs);
    learner->greedy = learner->action = oda_best(learner, learner->cell);
    if (!learner->resting) {
        const float epsilon
            = ODA_EXPLORATION / (1.0f + (float)learner->steps / ODA_EXPLORATION_DECAY);
        const float uniform = (float)(oda_random(learner) >> 8) / 16777216.0f;
        if (uniform < epsilon) {
            learner->action = (int32_t)(uniform / epsilon * (float)ODA_ACTIONS);
            if (learner->action == ODA_ACTIONS) { /* rounded up */
                learner->action = ODA_ACTIONS - 1;
            }
        }
    }
    return ODA_FIRST_ACTION + (int)learner->action;
}

/* Watkins' update of all values whose traces are not 0, by the error of the latest action. */
static inline void oda_update(oda_learner *learner, float target)
{
    const int32_t cell = learner->cell;
    const int32_t action = learner->action;
    const float error = target - learner->values[cell][action];
    if (learner->updates[cell][action] < UINT32_MAX) {
        ++learner->updates[cell][action];
    }
    learner->step_sizes[cell][action] = oda_step_size(learner->updates[cell][action]);
    if (action != learner->greedy) {
        oda_clear_traces(learner);
    }
    for (int a = 0; a < ODA_ACTIONS; ++a) {
        learner->traces[cell][a] = a == action ? 1.0f : 0.0f;
    }
    for (int k = 0; k < ODA_CELLS; ++k) {
        for (int a = 0; a < ODA_ACTIONS; ++a) {
            float trace = learner->traces[k][a];
            learner->values[k][a] += learner->step_sizes[k][a] * trace * error;
            trace *= ODA_TRACE_DECAY;
            learner->traces[k][a] = trace > ODA_SMALLEST_TRACE ? trace : 0.0f;
        }
    }
}

/* Note the return of the episode that ends among those that others are judged by. */
static inline void oda_compare(oda_learner *learner)
{
    const float found = learner->episode_return;
    if (learner->all_steps <= ODA_FIRST_STEPS || learner->first_episodes == 0) {
        ++learner->first_episodes;
        learner->first_return
            += (found - learner->first_return) / (float)learner->first_episodes;
    }
    if (found > learner->best_return) {
        learner->best_return = found;
        learner->best_at = learner->all_steps;
    }
}

/* Rest while episodes succeed, and start from nothing if learning is stuck. */
static inline void oda_end_episode(oda_learner *learner)
{
    float gained;
    int solved;
    const int was_learning = !learner->resting;
    oda_compare(learner);
    gained = learner->best_return - learner->first_return;
    solved = gained > 0.0f
        && learner->episode_return >= learner->best_return - ODA_SHORT * gained;
    if (solved) { /* longer streaks than those asked for say no more */
        learner->streak = learner->streak < 0 ? 1
            : learner->streak + (learner->streak < ODA_SOLVED_EPISODES);
    } else {
        learner->streak = learner->streak > 0 ? -1
            : learner->streak - (learner->streak > -ODA_SOLVED_EPISODES);
    }
    learner->resting = ODA_SOLVED_EPISODES > 0 && learner->streak >= ODA_SOLVED_EPISODES
        && (!was_learning || learner->all_steps - learner->best_at >= ODA_SETTLED_AFTER);
    learner->episode_return = 0.0f;
    oda_clear_traces(learner);
    if (was_learning && !solved && learner->streak <= -ODA_SOLVED_EPISODES
        && learner->steps > ODA_RESTART_AFTER) {
        oda_forget(learner);
    }
}

static inline int oda_learn(oda_learner *learner, const float obs[ODA_FEATURES], float reward,
    int terminated, int truncated)
{
    const int learned = reward - reward == 0.0f; /* it is a number, and finite */
    if (learned) {
        if (learner->steps < ODA_MAX_STEPS) {
            ++learner->steps;
        }
        if (learner->all_steps < ODA_MAX_STEPS) {
            ++learner->all_steps;
        }
        learner->episode_return += reward;
        if (!learner->resting) {
            const int32_t next = oda_cell(obs);
            const float value = learner->values[next][oda_best(learner, next)];
            oda_update(learner, terminated ? reward : reward + ODA_DISCOUNT * value);
        }
    } else {
        oda_clear_traces(learner);
    }
    if (terminated || truncated) {
        oda_end_episode(learner);
    }
    return learned;
}

