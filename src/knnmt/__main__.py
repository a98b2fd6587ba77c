"""The command line, as `knnmt` and as `python -m knnmt`."""

import sys


def main() -> None:
    """Run a command. Ctrl-C ends it without a traceback, also before there is a command to end."""
    try:
        from knnmt.cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
