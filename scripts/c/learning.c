/* Learns the cart-pole of 1983, as a chip would.

   Arguments: seed, steps, and whether it starts from what was learned before (1) or from nothing
   (0). Prints the bytes of the learner, nanoseconds a step, and how many of 1000 steps each of 100
   greedy episodes lasted. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "dynamics.h"
#include "policy.h"

#define REPETITIONS 10
#define LONGEST 1000

typedef struct {
    float obs[4];
    int begins, terminated;
} transition;

static oda_learner learner;

static void train(transition *seen, long steps)
{
    double s[4];
    int length = 0;
    int action = 0;
    for (long t = 0; t < steps; ++t) {
        transition *one = &seen[t];
        one->begins = length == 0;
        one->terminated = 0;
        if (one->begins) {
            begin(s, one->obs);
            action = oda_begin(&learner, one->obs);
        } else {
            one->terminated = step(s, action, one->obs);
            action = oda_step(&learner, one->obs, 1.0f, one->terminated);
        }
        length = one->terminated || length == LONGEST ? 0 : length + 1;
    }
}

/* The least time of repeating all that: the learner does and learns the same again. */
static double seconds(const transition *seen, long steps)
{
    double least = 0.0;
    for (int r = 0; r < REPETITIONS; ++r) {
        oda_learner again = learner;
        clock_t begun = clock();
        for (long t = 0; t < steps; ++t) {
            if (seen[t].begins) {
                oda_begin(&again, seen[t].obs);
            } else {
                oda_step(&again, seen[t].obs, 1.0f, seen[t].terminated);
            }
        }
        double time = (double)(clock() - begun) / CLOCKS_PER_SEC;
        least = r == 0 || time < least ? time : least;
    }
    return least;
}

static int play(void)
{
    double s[4];
    float obs[4];
    int t = 0;
    begin(s, obs);
    while (t < LONGEST) {
        int failed = step(s, oda_greedy(&learner, obs), obs);
        ++t;
        if (failed) {
            break;
        }
    }
    return t;
}

int main(int argc, char **argv)
{
    unsigned seed = argc > 1 ? (unsigned)atol(argv[1]) : 0;
    long steps = argc > 2 ? atol(argv[2]) : 0;
    transition *seen = malloc((size_t)steps * sizeof *seen);
    if (!seen) {
        return 1;
    }
    dynamics_seed += seed;
    oda_init(&learner, seed, argc > 3 ? atoi(argv[3]) : 0);
    train(seen, steps);
    printf("%u %g\n", (unsigned)sizeof learner, 1e9 * seconds(seen, steps) / (double)steps);
    for (int i = 0; i < 100; ++i) {
        printf("%d\n", play());
    }
    free(seen);
    return 0;
}
