"""The command line. It is set up for short commands before anything else is imported."""

import gc

# A command makes many values and few cycles; collecting garbage would cost it up to half its time, and the imports of
# its own code 4 ms.
gc.set_threshold(200_000)
