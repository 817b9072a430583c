"""Makes the package importable as `copyscope` without ever putting tools/ on sys.path.

tools/ holds profile.py, which would shadow the standard library's `profile` (docs/HOUSE.md).
"""

import importlib.util
import sys
from pathlib import Path

from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "tools" / "copyscope"


def _load() -> None:
    spec = importlib.util.spec_from_file_location(
        "copyscope", PACKAGE / "__init__.py", submodule_search_locations=[str(PACKAGE)]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["copyscope"] = module
    spec.loader.exec_module(module)


_load()

# How long a property takes says nothing on a busy or emulated machine.
settings.register_profile("copyscope", deadline=None)
settings.load_profile("copyscope")
