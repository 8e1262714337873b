static inline float oda_score(const float x[ODA_FEATURES], int k)
{
#ifdef MEANS
    float score = oda_offsets[k];
    for (int j = 0; j < ODA_FEATURES; ++j) {
        const float gap = x[j] - oda_means[k][j];
        score += isnan(gap) ? logf(oda_precisions[k][j]) : oda_precisions[k][j] * gap * gap;
    }
#else
    float score = oda_diagram[k][0];
    for (int j = 0; j < ODA_FEATURES; ++j) {
        const float slope = oda_diagram[k][1 + j];
#ifdef MISSING
        if (x[j] != x[j]) { /* without its part in the offset */
            score -= slope * (oda_missing[j][0] * slope + oda_missing[j][1]);
            continue;
        }
#endif
        score += slope * x[j];
    }
#endif
    return score;
}

#ifdef MODELS
static inline float oda_predict(const float obs[ODA_FEATURES])
#else
static inline int oda_predict(const float obs[ODA_FEATURES])
#endif
{
#ifdef ORIGIN
    float x[ODA_FEATURES];
    for (int j = 0; j < ODA_FEATURES; ++j) {
        x[j] = obs[j] - oda_origin[j];
    }
#else
    const float *x = obs;
#endif
#ifdef CLASSES
    float scores[ODA_CELLS];
    float least = 0.0f;
    for (int k = 0; k < ODA_CELLS; ++k) {
        scores[k] = oda_score(x, k);
        if (k == 0 || scores[k] < least) {
            least = scores[k];
        }
    }
    float densities[ODA_CLASSES] = {0.0f};
    int best = 0;
    for (int k = 0; k < ODA_CELLS; ++k) {
        densities[oda_classes[k]] += expf(least - scores[k]);
    }
    for (int c = 1; c < ODA_CLASSES; ++c) {
        if (densities[c] > densities[best]) {
            best = c;
        }
    }
#else
    int best = 0; /* the nearest */
    float least = 0.0f;
    for (int k = 0; k < ODA_CELLS; ++k) {
        const float score = oda_score(x, k);
        if (k == 0 || score < least) {
            least = score;
            best = k;
        }
    }
#endif
#ifdef MODELS
    float value = oda_models[best][0];
    for (int j = 0; j < ODA_FEATURES; ++j) {
        value += oda_models[best][1 + j] * x[j];
    }
    return value;
#else
#ifdef LABELS
    return (int)oda_labels[best];
#else
    return best;
#endif
#endif
}

