/* Learns the cart-pole of 1983 from nothing, as a chip would.

   Arguments: seed, steps. Prints the bytes of the learner, nanoseconds of an act and a learn until
   learning first rests, after how many steps that is (0: never), and how many of 1000 steps each of 100 greedy
   episodes lasted. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "dynamics.h"
#include "policy.h"

#define REPETITIONS 50
#define LONGEST 1000

typedef struct {
    float obs[4], next_obs[4];
    int terminated, truncated;
} transition;

static oda_learner learner;

static long train(transition *seen, long steps)
{
    double s[4];
    float obs[4];
    long rested = 0;
    int length = 0;
    begin(s, obs);
    for (long t = 0; t < steps; ++t) {
        transition *one = &seen[t];
        for (int j = 0; j < 4; ++j) {
            one->obs[j] = obs[j];
        }
        one->terminated = step(s, oda_act(&learner, obs), obs);
        one->truncated = ++length == LONGEST;
        for (int j = 0; j < 4; ++j) {
            one->next_obs[j] = obs[j];
        }
        oda_learn(&learner, obs, 1.0f, one->terminated, one->truncated);
        if (one->terminated || one->truncated) {
            begin(s, obs);
            length = 0;
        }
        if (!rested && learner.resting) {
            rested = t + 1;
        }
    }
    return rested;
}

/* The least time of repeating all that: the learner does and learns the same again. */
static double seconds(const transition *seen, long steps, unsigned seed)
{
    double least = 0.0;
    for (int r = 0; r < REPETITIONS; ++r) {
        clock_t begun = clock();
        oda_init(&learner, seed);
        for (long t = 0; t < steps; ++t) {
            oda_act(&learner, seen[t].obs);
            oda_learn(&learner, seen[t].next_obs, 1.0f, seen[t].terminated, seen[t].truncated);
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
    oda_init(&learner, seed);
    long rested = train(seen, steps);
    oda_learner learned = learner;
    long timed = rested ? rested : steps;
    double time = seconds(seen, timed, seed);
    printf("%u %g %ld\n", (unsigned)sizeof learner, 1e9 * time / (double)timed, rested);
    learner = learned;
    for (int i = 0; i < 100; ++i) {
        printf("%d\n", play());
    }
    free(seen);
    return 0;
}
