"""How long OpenMP's threads wait for each other before they give their core away.

Threads that wait keep their core busy, in case it is over soon: GNU's OpenMP for some milliseconds.
That is longer than the Python between two layers, so on a machine with other work the waiting
thread takes the time that the thread it waits for would need.
"""

import os

# Chosen with `clustercaps bench waits`: turns of an empty loop.
SPINS = 1000
SPIN_COUNT = "GOMP_SPINCOUNT"
# Of OpenMP; whoever sets one of them has decided.
SETTINGS = (SPIN_COUNT, "OMP_WAIT_POLICY")


def wait_briefly() -> None:
    """Shorten waits, unless the environment says how to wait; call it before torch is imported.

    OpenMP reads its settings once, when it is loaded. Results do not depend on them.
    """
    if not any(name in os.environ for name in SETTINGS):
        os.environ[SPIN_COUNT] = str(SPINS)
