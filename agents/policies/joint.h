/* z = oda_transform (obs - oda_origin, u), with an action u in units from -1 to 1; Q(obs, u) is the
   mean of value + <slope, z - m_k>, rows of oda_planes, over the ODA_BLENDED cells whose oda_places
   m_k are nearest to z, with weights exp(-|z - m_k|^2 / ODA_WIDTH). */

/* The cells near a state, and what belongs to it. */
typedef struct {
    float idle[ODA_SIZE]; /* z with the action 0 */
    float parts[ODA_NEAR][ODA_COMPONENTS]; /* actions that the cells stand for here */
    float distances[ODA_NEAR];
    int cells[ODA_NEAR]; /* the nearest first */
    int count;
} oda_state;

/* Put a number among the n least; n grows up to the size. */
static inline int oda_insert(float *least, int *numbers, int n, int size, float value, int number)
{
    if (n == size && !(value < least[n - 1])) {
        return n;
    }
    int i = n < size ? n++ : n - 1;
    for (; i > 0 && value < least[i - 1]; --i) {
        least[i] = least[i - 1];
        numbers[i] = numbers[i - 1];
    }
    least[i] = value;
    numbers[i] = number;
    return n;
}

static inline float oda_clip(float value, float low, float high)
{
    if (!(value > low)) { /* or not a number */
        return low;
    }
    return value < high ? value : high;
}

static inline void oda_part(const float idle[ODA_SIZE], int k, float part[ODA_COMPONENTS])
{
    for (int c = 0; c < ODA_COMPONENTS; ++c) {
        float sum = 0.0f;
        for (int i = 0; i < ODA_SIZE; ++i) {
            sum += oda_inverse[c][i] * (oda_places[k][i] - idle[i]);
        }
        part[c] = oda_clip(sum, -1.0f, 1.0f);
    }
}

static inline void oda_look(const float obs[ODA_FEATURES], oda_state *state)
{
    for (int i = 0; i < ODA_SIZE; ++i) {
        state->idle[i] = 0.0f;
        for (int j = 0; j < ODA_FEATURES; ++j) {
            state->idle[i] += oda_transform[i][j] * (obs[j] - oda_origin[j]);
        }
    }
    state->count = 0;
    for (int k = 0; k < ODA_CELLS; ++k) {
        float part[ODA_COMPONENTS];
        float score = 0.0f;
        oda_part(state->idle, k, part);
        for (int i = 0; i < ODA_SIZE; ++i) {
            float gap = state->idle[i] - oda_places[k][i];
            for (int c = 0; c < ODA_COMPONENTS; ++c) {
                gap += oda_transform[i][ODA_FEATURES + c] * part[c];
            }
            score += gap * gap;
        }
        state->count =
            oda_insert(state->distances, state->cells, state->count, ODA_NEAR, score, k);
    }
    for (int j = 0; j < state->count; ++j) {
        oda_part(state->idle, state->cells[j], state->parts[j]);
    }
}

/* Q of an action in units. */
static inline float oda_value(const oda_state *state, const float unit[ODA_COMPONENTS])
{
    float point[ODA_SIZE];
    float weights[ODA_BLENDED];
    int best[ODA_BLENDED];
    int n = 0;
    float total = 0.0f;
    float value = 0.0f;
    for (int i = 0; i < ODA_SIZE; ++i) {
        point[i] = state->idle[i];
        for (int c = 0; c < ODA_COMPONENTS; ++c) {
            point[i] += oda_transform[i][ODA_FEATURES + c] * unit[c];
        }
    }
    for (int j = 0; j < state->count; ++j) {
        float distance = 0.0f;
        for (int i = 0; i < ODA_SIZE; ++i) {
            const float gap = point[i] - oda_places[state->cells[j]][i];
            distance += gap * gap;
        }
        n = oda_insert(weights, best, n, ODA_BLENDED, distance, state->cells[j]);
    }
    const float nearest = weights[0];
    for (int j = 0; j < n; ++j) {
        const float weight = expf((nearest - weights[j]) / ODA_WIDTH);
        float plane = oda_planes[best[j]][0];
        for (int i = 0; i < ODA_SIZE; ++i) {
            plane += oda_planes[best[j]][1 + i] * (point[i] - oda_places[best[j]][i]);
        }
        total += weight;
        value += weight * plane;
    }
    return value / total;
}

static inline void oda_policy(const float obs[ODA_FEATURES], float action[ODA_COMPONENTS])
{
    oda_state state;
    float unit[ODA_COMPONENTS] = {0};
    float greatest = 0.0f;
    oda_look(obs, &state);
    const int parts = state.count < ODA_PARTS ? state.count : ODA_PARTS;
    for (int j = 0; j < ODA_LEVELS + parts; ++j) {
        const float *trial = j < ODA_LEVELS ? oda_levels[j] : state.parts[j - ODA_LEVELS];
        const float value = oda_value(&state, trial);
        if (j == 0 || value > greatest) {
            greatest = value;
            for (int c = 0; c < ODA_COMPONENTS; ++c) {
                unit[c] = trial[c];
            }
        }
    }
    for (int c = 0; c < ODA_COMPONENTS; ++c) {
        const float middle = greatest;
        const float centre = unit[c];
        float found = centre;
        unit[c] = oda_clip(centre - ODA_STEP, -1.0f, 1.0f);
        const float below = oda_value(&state, unit);
        if (below > greatest) {
            greatest = below;
            found = unit[c];
        }
        unit[c] = oda_clip(centre + ODA_STEP, -1.0f, 1.0f);
        const float above = oda_value(&state, unit);
        if (above > greatest) {
            greatest = above;
            found = unit[c];
        }
        const float bend = 2.0f * middle - below - above;
        const int inside = centre - ODA_STEP >= -1.0f && centre + ODA_STEP <= 1.0f;
        if (found == centre && bend > 0.0f && inside) {
            unit[c] = centre + 0.5f * ODA_STEP * (above - below) / bend;
            const float vertex = oda_value(&state, unit);
            if (vertex > greatest) {
                greatest = vertex;
                found = unit[c];
            }
        }
        unit[c] = found;
    }
    for (int c = 0; c < ODA_COMPONENTS; ++c) {
        const float between = (1.0f - unit[c]) * oda_low[c] + (1.0f + unit[c]) * oda_high[c];
        const float wanted = greatest == greatest ? 0.5f * between : 0.0f; /* or not a number */
        action[c] = oda_clip(wanted, oda_low[c], oda_high[c]);
    }
}

