"""A process that renders: jobs in as lines of JSON, pictures out as bytes.

`python -m clustercaps.data.rendering.worker` is started by `crew`, never by hand. Plain processes
instead of multiprocessing: the script that loads the set is not imported a second time, and no
thread of it is forked half-way.
"""

import json
import signal
import sys

from clustercaps.data.rendering.turntable import stereo_pairs


def main() -> None:
    """Answer each line on stdin with the pictures of that position; end with stdin."""
    # Ctrl-C reaches every process of the terminal, but the one that started this one decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        for line in sys.stdin:
            sys.stdout.buffer.write(stereo_pairs(**json.loads(line)).tobytes())
            sys.stdout.buffer.flush()
    except BrokenPipeError:
        # Nobody is waiting for the pictures any more. Closing here keeps Python from complaining.
        sys.stderr.close()


if __name__ == "__main__":
    main()
