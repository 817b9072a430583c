"""What was measured and cannot be written where it was to go is kept somewhere else: a run is dear."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from copyscope.files import saving

# A full disk is mostly one of several; the last of these is memory.
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
        return f"what was measured is kept in {directory}"
    return f"what was measured could not be kept, not in {', '.join(PLACES)} either: free some space"
