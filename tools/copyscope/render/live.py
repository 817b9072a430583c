"""A screen of a watched program while it runs."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self


class LiveView:
    """Placeholder-free shell: filled in below."""

    def __init__(self, name: str, target: dict[str, Any], *, wanted: bool) -> None:
        self.name = name

    def update(self, watcher: Any) -> None:
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        return
