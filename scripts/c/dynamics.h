/* The cart-pole of 1983, with friction, in double precision. */
#include <math.h>

static unsigned long long dynamics_seed = 12345;

static double uniform(void)
{
    dynamics_seed = dynamics_seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return (double)(dynamics_seed >> 33) / 2147483648.0;
}

static void begin(double s[4], float obs[4])
{
    for (int j = 0; j < 4; ++j) {
        s[j] = 0.1 * uniform() - 0.05;
        obs[j] = (float)s[j];
    }
}

/* Returns whether the pole or the cart is out of bounds. */
static int step(double s[4], int action, float obs[4])
{
    const double g = 9.8, cart = 1.0, m = 0.1, l = 0.5, tau = 0.02;
    const double friction_cart = 0.0005, friction_pole = 0.000002;
    double force = action == 1 ? 10.0 : -10.0;
    double sign = (s[1] > 0.0) - (s[1] < 0.0);
    double push = (force + m * l * s[3] * s[3] * sin(s[2]) - friction_cart * sign) / (cart + m);
    double theta_acc = (g * sin(s[2]) - cos(s[2]) * push - friction_pole * s[3] / (m * l))
        / (l * (4.0 / 3.0 - m * cos(s[2]) * cos(s[2]) / (cart + m)));
    double x_acc = push - m * l * theta_acc * cos(s[2]) / (cart + m);
    s[0] += tau * s[1];
    s[1] += tau * x_acc;
    s[2] += tau * s[3];
    s[3] += tau * theta_acc;
    for (int j = 0; j < 4; ++j) {
        obs[j] = (float)s[j];
    }
    return fabs(s[0]) > 2.4 || fabs(s[2]) > 12.0 * 3.14159265358979323846 / 180.0;
}
