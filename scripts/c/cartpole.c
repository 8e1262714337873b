/* Plays the cart-pole of 1983, and prints how many of 1000 steps each of 100 episodes lasted. */
#include <stdio.h>
#include "dynamics.h"
#include "policy.h"

static int episode(void)
{
    double s[4];
    float obs[4];
    int t = 0;
    begin(s, obs);
    while (t < 1000) {
        int failed = step(s, oda_policy(obs), obs);
        ++t;
        if (failed) {
            break;
        }
    }
    return t;
}

int main(void)
{
    for (int i = 0; i < 100; ++i) {
        printf("%d\n", episode());
    }
    return 0;
}
