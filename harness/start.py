"""Starts the command line. Its imports take a second, in which Ctrl-C shows no traceback either."""

import sys


def main() -> None:
    try:
        from harness.cli.main import main as run

        run()
    except KeyboardInterrupt:
        print("dlbench: stopped", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
