"""The command line: `grandrounds --help` teaches it."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, NoReturn

GOES_ON = {
    **dict.fromkeys(("run", "coordinator"), "the same command with --resume goes on"),
    **dict.fromkeys(("compare", "search", "reproduce", "demo", "map"), "the same command goes on"),
}
"""What to do about a command that was stopped."""


def main() -> NoReturn:
    """Run a command. A mistake of the user's is one sentence, under --json an object, and exit code 1; never a
    traceback."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        import typer

        from grandrounds.cli.app import app
        from grandrounds.cli.console import complain
        from grandrounds.errors import GrandRoundsError
    except KeyboardInterrupt:
        sys.exit(130)
    wrong_usage: Any = typer.BadParameter.__base__  # UsageError: typer's own, or click's where typer is older
    try:
        code = app(standalone_mode=False)
    except GrandRoundsError as error:
        complain(str(error))
        sys.exit(1)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except wrong_usage as error:
        if "--json" in sys.argv:
            complain(error.format_message())
            sys.exit(1)
        error.show()
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        where = f"'{error.filename}'" if error.filename else "a file"
        complain(
            f"{where} can't be read or written: {error.strerror or error}; check the path, its rights and the space "
            "on the disk"
        )
        sys.exit(1)
    if code == 130:  # what typer makes of KeyboardInterrupt
        command = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
        complain(f"stopped; what was finished is kept, and {GOES_ON[command]}" if command in GOES_ON else "stopped")
        sys.stderr.flush()
        os._exit(130)  # threads that still compute are not waited for
    sys.exit(code if isinstance(code, int) else 0)
