"""From an address to the name of a function, by text in the form of /proc/kallsyms. Pure."""

from collections.abc import Callable

UNKNOWN_ROOT = "0"


def names(text: str, is_known: Callable[[str], bool]) -> dict[str, str]:
    """Address (16 hex digits) -> name. Of several at one address one that `is_known`, else the first."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) < 3:
            continue
        address, name = words[0].zfill(16), words[2]
        kept = found.get(address)
        if kept is None or (not is_known(kept) and is_known(name)):
            found[address] = name
    return found


def frames(addresses: tuple[str, ...], known: dict[str, str]) -> list[str]:
    """The names of a stack, the leaf first; an address without a name stays one."""
    return [known.get(address.zfill(16), f"[{address}]") for address in addresses if address != UNKNOWN_ROOT]
