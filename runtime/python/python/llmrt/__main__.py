"""`python -m llmrt` is the command `llmrt`."""

import signal
import sys

from ._llmrt import command


def main() -> None:
    """Runs the command, and ends the process with its exit code."""
    # The command's own handlers, or the system's where it has none.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(command([sys.executable, "-m", "llmrt"], ["llmrt", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
