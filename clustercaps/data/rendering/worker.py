"""A rendering process: reads jobs as lines of JSON, writes images as bytes.

`python -m clustercaps.data.rendering.worker` is started by `crew`, never by hand. Plain processes
instead of multiprocessing: the user's script is not imported a second time, and no threads are
forked.
"""

import json
import signal
import sys

from clustercaps.data.rendering.turntable import stereo_pairs


def main() -> None:
    """Answer each line on stdin with the images of that position, until stdin is closed."""
    # Ctrl-C reaches every process of the terminal, but the parent process handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        for line in sys.stdin:
            sys.stdout.buffer.write(stereo_pairs(**json.loads(line)).tobytes())
            sys.stdout.buffer.flush()
    except BrokenPipeError:
        # The parent process has closed the pipe. Closing stderr suppresses Python's message.
        sys.stderr.close()


if __name__ == "__main__":
    main()
