"""What was measured and cannot be written where it was to go is kept somewhere else: a run is dear."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from copyscope.errors import RunError, describe
from copyscope.escaping import one_line
from copyscope.files import saving

# A full disk is mostly one of several; the last of these is memory.
SAID_MAX = 120
PLACES = ("/var/tmp", "/tmp", "/dev/shm")


def rescue(files: Mapping[str, bytes]) -> str:
    """Keep files in a new directory of the invoking user's; says where, or that it could not be done."""
    for place in dict.fromkeys((tempfile.gettempdir(), *PLACES, os.getcwd())):  # noqa: PTH109
        directory = None
        try:
            # Of a name that nobody can know, made and not found, for us alone.
            directory = Path(tempfile.mkdtemp(prefix="copyscope-kept-", dir=place))
            for name, data in files.items():
                saving.save(directory / name, data)
            saving.give_directory(directory)
        except OSError:
            if directory is not None:
                shutil.rmtree(directory, ignore_errors=True)
            continue
        return f"the measurement is saved in {directory}"
    return f"the measurement could not be saved, not in {', '.join(PLACES)} either: free some space"


@contextmanager
def kept_if_it_fails(name: str, data: Callable[[], bytes]) -> Iterator[None]:
    """What is done with a measurement may fail: then it is kept as it is. Raises RunError that says where."""
    try:
        yield
    except Exception as error:
        # The place has to stand in one line with it, whole.
        raise RunError(f"{one_line(describe(error), SAID_MAX)}: {rescue({name: data()})}") from error
