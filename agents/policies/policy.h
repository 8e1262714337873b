#ifdef CELLS
#ifdef FIXED
typedef int64_t oda_number;

/* oda_offsets[k] ODA_ONE + 2^oda_shifts[k] <oda_slopes[k], x>: the nearest cell has the least. */
static inline oda_number oda_score(const int32_t x[ODA_FEATURES], int k)
{
    int64_t score = 0;
    for (int j = 0; j < ODA_FEATURES; ++j) {
        score += (int64_t)oda_slopes[k][j] * x[j];
    }
    return score * ((int64_t)1 << oda_shifts[k]) + oda_offsets[k] * ODA_ONE;
}
#else
#ifdef WHOLE
typedef double oda_number;
#else
typedef float oda_number;
#endif

/* Offset and slopes in a row of oda_diagram: the nearest cell has the least score. */
static inline oda_number oda_score(const float x[ODA_FEATURES], int k)
{
    oda_number score = oda_diagram[k][0];
    for (int j = 0; j < ODA_FEATURES; ++j) {
        score += oda_diagram[k][1 + j] * (oda_number)x[j];
    }
#ifdef CURVED
    for (int j = 0; j < ODA_FEATURES; ++j) { /* slopes by squares are behind */
        score += oda_diagram[k][1 + ODA_FEATURES + j] * (oda_number)(x[j] * x[j]);
    }
#endif
    return score;
}
#endif

#endif
#ifdef LOOKED_UP
#define ODA_ACTION(k) (int)oda_actions[k]

#endif
#ifdef NUMBERS
#define ODA_ACTION(k) (k)

#endif
#ifdef COMPONENTS
static inline void oda_policy(const float obs[ODA_FEATURES], float action[ODA_COMPONENTS])
#else
static inline int oda_policy(const float obs[ODA_FEATURES])
#endif
{
#ifdef STATES
    float state = obs[0] - ODA_FIRST_STATE;
    if (!(state > 0.0f)) { /* or not a number */
        state = 0.0f;
    }
    if (state > ODA_STATES - 1.0f) {
        state = ODA_STATES - 1.0f;
    }
    const int row = (int)(state + 0.5f);
#ifdef COMPONENTS
    for (int l = 0; l < ODA_COMPONENTS; ++l) {
        action[l] = oda_table[row][l];
    }
#else
    return ODA_FIRST_ACTION + (int)oda_table[row];
#endif
#else
#ifdef FIXED
    int32_t x[ODA_FEATURES]; /* in steps of 1 / oda_scale[j] */
    for (int j = 0; j < ODA_FEATURES; ++j) {
        float steps = (obs[j] - oda_origin[j]) * oda_scale[j];
        if (!(steps > -ODA_CLIP)) { /* or not a number */
            steps = -ODA_CLIP;
        }
        if (steps > ODA_CLIP) {
            steps = ODA_CLIP;
        }
        x[j] = (int32_t)(steps < 0.0f ? steps - 0.5f : steps + 0.5f);
    }
#else
#ifdef ORIGIN
    float x[ODA_FEATURES];
    for (int j = 0; j < ODA_FEATURES; ++j) {
        x[j] = obs[j] - oda_origin[j];
    }
#else
    const float *x = obs;
#endif
#endif
#ifdef NEAR
    int cells[ODA_NEAR] = {0};
    oda_number least[ODA_NEAR] = {0};
    for (int k = 0; k < ODA_CELLS; ++k) {
        const oda_number score = oda_score(x, k);
        int i = k < ODA_NEAR ? k : ODA_NEAR; /* will be its place among the nearest */
        int j = k < ODA_NEAR ? k : ODA_NEAR - 1;
        while (i > 0 && score < least[i - 1]) {
            --i;
        }
        for (; j > i; --j) {
            least[j] = least[j - 1];
            cells[j] = cells[j - 1];
        }
        if (i < ODA_NEAR) {
            least[i] = score;
            cells[i] = k;
        }
    }
    float weights[ODA_NEAR]; /* by which advantages over action 0 are blended */
    for (int i = 0; i < ODA_NEAR; ++i) {
#ifdef FIXED
        const float exponent = (float)(least[0] - least[i]) * ODA_UNIT;
        weights[i] = ldexpf(expf(exponent), oda_exponents[cells[i]]);
#else
        weights[i] = expf((float)(least[0] - least[i]));
#endif
    }
    int best = 0;
    for (int a = 1; a < ODA_ACTIONS; ++a) {
        float gain = 0.0f; /* over the best so far; cells where both are equal add exactly 0 */
        for (int i = 0; i < ODA_NEAR; ++i) {
            const int k = cells[i];
            const float before = best > 0 ? (float)oda_advantages[k][best - 1] : 0.0f;
            gain += weights[i] * ((float)oda_advantages[k][a - 1] - before);
        }
        if (gain > ODA_TIE) { /* the first of equals, as in Python */
            best = a;
        }
    }
#ifdef COMPONENTS
    float total = 0.0f;
    for (int i = 0; i < ODA_NEAR; ++i) {
        total += weights[i];
    }
    for (int l = 0; l < ODA_COMPONENTS; ++l) {
        float sum = 0.0f;
        for (int i = 0; i < ODA_NEAR; ++i) {
            sum += weights[i] * oda_codevectors[cells[i]][best][l];
        }
        action[l] = sum / total;
#endif
#else
#ifdef CLAUSES
    /* A clause holds where all of its rows are positive. The first clauses forbid actions; of the
       others the first that holds, and is not forbidden, decides. */
    unsigned char forbidden[ODA_ACTIONS] = {0};
    int nearest = -1;
    oda_number least = 0;
    for (int c = 0, row = 0; c < ODA_CLAUSES && nearest < 0; ++c) {
        int holds = 1;
        for (; row < oda_ends[c]; ++row) {
            double sum = oda_conditions[row][0];
            for (int j = 0; j < ODA_FEATURES; ++j) {
                sum += oda_conditions[row][1 + j] * (double)obs[j];
            }
            holds = holds && sum > 0.0;
        }
#ifdef FORBIDDEN
        if (c < ODA_FORBIDDING) {
            if (holds) {
                forbidden[oda_forbidden[c]] = 1;
            }
            continue;
        }
#endif
        if (holds && !forbidden[ODA_ACTION(ODA_CELLS + c - ODA_FORBIDDING)]) {
            nearest = ODA_CELLS + c - ODA_FORBIDDING;
        }
    }
    for (int k = 0, decided = nearest >= 0; k < ODA_CELLS && !decided; ++k) {
        const oda_number score = oda_score(x, k);
        if (!forbidden[ODA_ACTION(k)] && (nearest < 0 || score < least)) {
            least = score;
            nearest = k;
        }
    }
#else
#ifdef ONLY
    const int nearest = 0;
    (void)x;
#else
    int nearest = 0;
    oda_number least = 0; /* where no two cells have the same action, the score of cell 0 */
#ifdef APART
    for (int k = 1; k < ODA_CELLS; ++k) {
        const oda_number score = oda_score(x, k - 1);
        if (score < least) {
#else
    for (int k = 0; k < ODA_CELLS; ++k) {
        const oda_number score = oda_score(x, k);
        if (k == 0 || score < least) {
#endif
            least = score;
            nearest = k;
        }
    }
#endif
#endif
#ifdef COMPONENTS
    for (int l = 0; l < ODA_COMPONENTS; ++l) {
        float sum = oda_affine[nearest][l][0];
        for (int j = 0; j < ODA_FEATURES; ++j) {
            sum += oda_affine[nearest][l][1 + j] * x[j];
        }
        action[l] = sum;
#else
    return ODA_FIRST_ACTION + ODA_ACTION(nearest);
#endif
#endif
#ifdef COMPONENTS
        if (action[l] != action[l]) { /* not a number */
            action[l] = 0.0f;
        }
        if (action[l] < oda_low[l]) {
            action[l] = oda_low[l];
        }
        if (action[l] > oda_high[l]) {
            action[l] = oda_high[l];
        }
    }
#endif
#ifdef NEAR
#ifndef COMPONENTS
    return ODA_FIRST_ACTION + best;
#endif
#endif
#endif
}

