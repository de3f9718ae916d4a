"""An expander in a process of its own, to be killed: `python -m tests.integration.batch_expander URL CHUNK`."""

import sys

from tests.batch_parts import make_expander


def main() -> None:
    """Say that it begins, and expand until nothing is left."""
    expander = make_expander(sys.argv[1], chunk=int(sys.argv[2]))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while expander.run(60.0):
        pass


if __name__ == "__main__":
    main()
