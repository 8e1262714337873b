/* Reads n observations, writes their actions, and says how many nanoseconds a decision took,
   at the least. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "policy.h"

#define PASSES 20
#define REPETITIONS 10
#ifdef ODA_COMPONENTS
typedef struct { float of[ODA_COMPONENTS]; } decision;
#define DECIDE(obs, action) oda_policy(obs, (action).of)
#else
typedef int decision;
#define DECIDE(obs, action) ((action) = oda_policy(obs))
#endif

int main(int argc, char **argv)
{
    size_t n = argc > 1 ? (size_t)atol(argv[1]) : 0;
    float(*obs)[ODA_FEATURES] = malloc(n * sizeof *obs);
    decision *actions = malloc(n * sizeof *actions);
    if (!obs || !actions || fread(obs, sizeof *obs, n, stdin) != n) {
        return 1;
    }
    double least = 0.0;
    for (int r = 0; r < REPETITIONS; ++r) {
        clock_t begin = clock();
        for (int p = 0; p < PASSES; ++p) {
            for (size_t i = 0; i < n; ++i) {
                DECIDE(obs[i], actions[i]);
            }
        }
        double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC / PASSES;
        least = r == 0 || seconds < least ? seconds : least;
    }
    fprintf(stderr, "%g", 1e9 * least / (double)n);
    return fwrite(actions, sizeof *actions, n, stdout) == n ? 0 : 1;
}
