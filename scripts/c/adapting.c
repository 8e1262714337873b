/* Reads n samples and their labels, predicts the labels of each block before it learns from them,
   writes the predictions and what was learned, and says how many bytes that is and how many nanoseconds a sample
   takes to be learned from and to be predicted, at the least.

   Arguments: n, samples of a block. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "predict.h"

#define REPETITIONS 10

typedef struct {
    float obs[ODA_FEATURES];
    int32_t label;
} sample;

static oda_learner learner;

static void learn(const sample *seen, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; ++i) {
        oda_partial_fit(&learner, seen[i].obs, seen[i].label);
    }
}

static void predict(const sample *seen, size_t begin, size_t end, int32_t *found)
{
    for (size_t i = begin; i < end; ++i) {
        found[i] = oda_predict(&learner, seen[i].obs);
    }
}

static double since(clock_t begun, double least, int repetition)
{
    double seconds = (double)(clock() - begun) / CLOCKS_PER_SEC;
    return repetition == 0 || seconds < least ? seconds : least;
}

int main(int argc, char **argv)
{
    size_t n = argc > 1 ? (size_t)atol(argv[1]) : 0;
    size_t block = argc > 2 ? (size_t)atol(argv[2]) : 1;
    sample *seen = malloc(n * sizeof *seen);
    int32_t *found = malloc(n * sizeof *found);
    double learning = 0.0;
    double predicting = 0.0;
    if (!seen || !found || fread(seen, sizeof *seen, n, stdin) != n) {
        return 1;
    }
    for (int r = 0; r < REPETITIONS; ++r) {
        clock_t begun = clock();
        oda_init(&learner);
        learn(seen, 0, n);
        learning = since(begun, learning, r);
        begun = clock();
        predict(seen, 0, n, found);
        predicting = since(begun, predicting, r);
    }
    oda_init(&learner);
    for (size_t begin = 0; begin < n; begin += block) {
        size_t end = n - begin < block ? n : begin + block;
        predict(seen, begin, end, found);
        learn(seen, begin, end);
    }
    fprintf(stderr, "%u %g %g", (unsigned)sizeof learner, 1e9 * learning / (double)n,
        1e9 * predicting / (double)n);
    fwrite(&learner, sizeof learner, 1, stdout);
    return fwrite(found, sizeof *found, n, stdout) == n ? 0 : 1;
}
