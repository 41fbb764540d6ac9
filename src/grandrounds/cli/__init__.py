"""The command line: `grandrounds --help` teaches it."""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run a command. A mistake of the user's is one sentence and exit code 1, never a traceback."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        import click

        from grandrounds.cli.app import app
        from grandrounds.cli.console import complain
        from grandrounds.errors import GrandRoundsError
    except KeyboardInterrupt:
        sys.exit(130)
    try:
        code = app(standalone_mode=False)
    except GrandRoundsError as error:
        complain(str(error))
        sys.exit(1)
    except (KeyboardInterrupt, click.Abort):
        complain("stopped; what was finished is kept, and the same command with --resume goes on")
        sys.stderr.flush()
        os._exit(130)  # threads that still compute are not waited for
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)
