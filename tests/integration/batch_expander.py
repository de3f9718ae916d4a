"""An expander in a process of its own, to be killed: `python -m tests.integration.batch_expander URL CHUNK`."""

import sys

from tests.batch_parts import make_expander


def main() -> None:
    """Expand until nothing is left, saying so at the end."""
    expander = make_expander(sys.argv[1], chunk=int(sys.argv[2]))
    print("ready", flush=True)
    while expander.run(60.0):
        pass
    print("done", flush=True)


if __name__ == "__main__":
    main()
