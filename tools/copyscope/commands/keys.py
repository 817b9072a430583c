"""Keys that are pressed while a screen is shown: read one by one, in a thread of their own."""

import contextlib
import os
import select
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def pressed(tell: Callable[[str], None]) -> Iterator[None]:
    """Each key is told until the block is over; none where nobody can press one."""
    try:
        terminal = sys.stdin.fileno()
        before = termios.tcgetattr(terminal)
    except (OSError, ValueError, AttributeError, termios.error):
        yield
        return
    over, end = os.pipe()

    def read() -> None:
        while terminal in (ready := select.select([terminal, over], [], [])[0]) and over not in ready:
            key = os.read(terminal, 1)
            if not key:
                return
            tell(key.decode(errors="replace"))

    reader = threading.Thread(target=read, daemon=True)
    tty.setcbreak(terminal)
    reader.start()
    try:
        yield
    finally:
        os.write(end, b".")
        reader.join(1)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
        os.close(over)
        os.close(end)
