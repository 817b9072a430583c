"""An interface of this machine that is lent to a run: whether it may be taken, and how to give it back."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from copyscope.topology.inspection import parse_json
from copyscope.topology.shell import Command, TopologyError, run_together

SYS_CLASS_NET = Path("/sys/class/net")
# Lines of `ethtool -k` that `ethtool -K` knows by another name. Other lines without indentation only sum up
# the indented ones below them.
SWITCHES = {
    "generic-segmentation-offload": "gso",
    "generic-receive-offload": "gro",
    "large-receive-offload": "lro",
    "rx-checksumming": "rx",
}


@dataclass(frozen=True)
class Interface:
    """What it was like before the run."""

    name: str
    driver: str
    mtu_bytes: int
    up: bool
    addresses: tuple[dict[str, Any], ...]  # as in `ip -j addr`, without those that come by themselves
    routes: int  # that somebody added; they go with the addresses and cannot be given back
    features: str  # as `ethtool -k` printed them

    def note(self) -> str | None:
        """What the run took away for its time, for the record."""
        if not self.addresses and not self.routes:
            return None
        shown = ", ".join(f"{row['local']}/{row['prefixlen']}" for row in self.addresses) or "no address"
        return f"{self.name} was in use here ({shown}; routes of others, not restored: {self.routes})"

    def address_lines(self) -> str:
        """Lines for `ip -batch` that give it its addresses back."""
        return "".join(f"addr replace {_address(row)} dev {self.name}\n" for row in self.addresses)


def read_interfaces(names: tuple[str, ...]) -> list[Interface]:
    """What they are like; raises TopologyError for one that must not be taken."""
    for name in names:
        reason = why_not_taken(name)
        if reason:
            raise TopologyError(f"topology: nics: {name}: {reason}")
    update = "update iproute2"
    commands = [Command(("ip", "-j", f"-{v}", "route", "show", "table", "all"), update) for v in (4, 6)]
    for name in names:
        commands.append(Command(("ip", "-j", "addr", "show", "dev", name), update))
        commands.append(Command(("ethtool", "-k", name), "update ethtool"))
    ipv4, ipv6, *answers = run_together(commands)
    routes = parse_json(ipv4) + parse_json(ipv6)
    return [
        make_interface(parse_json(shown)[0], features, routes, driver_of(name))
        for name, shown, features in zip(names, answers[::2], answers[1::2], strict=True)
    ]


def why_not_taken(name: str, root: Path = SYS_CLASS_NET) -> str | None:
    """Why sysfs says that it cannot be used, with the next step; None when nothing speaks against it."""
    place = root / name
    if not place.exists():
        return "no such interface: `ip -br link` lists them"
    if not (place / "device").exists():
        return "a virtual interface, without a device behind it: use two ports of network cards"
    above = sorted(entry.name.removeprefix("upper_") for entry in place.glob("upper_*"))
    if above:
        return f"{', '.join(above)} is built on it: remove it from there, or use another port"
    return None


def driver_of(name: str) -> str:
    try:
        return (SYS_CLASS_NET / name / "device" / "driver").readlink().name
    except OSError:  # a device without a driver link (some platform devices)
        return "unknown"


def make_interface(
    shown: dict[str, Any], features: str, routes: list[dict[str, Any]], driver: str
) -> Interface:
    """From one row of `ip -j addr`, `ethtool -k` and all routes; raises TopologyError for a default route."""
    name = str(shown["ifname"])
    mine = [row for row in routes if name in _devices_of(row)]
    if any(row.get("dst") == "default" for row in mine):
        raise TopologyError(
            f"topology: nics: {name}: the default route goes through it: use another port, or route elsewhere"
        )
    return Interface(
        name=name,
        driver=driver,
        mtu_bytes=int(shown["mtu"]),
        up="UP" in shown.get("flags", []),
        addresses=tuple(row for row in shown.get("addr_info", []) if row and not _comes_by_itself(row)),
        routes=sum(row.get("protocol") not in ("kernel", "ra") for row in mine),
        features=features,
    )


def switched(before: str, after: str) -> list[str]:
    """The words for `ethtool -K` that bring its features back from `after` to `before`."""
    now = dict(_features(after))
    words: list[str] = []
    for line, state in _features(before):
        name = line.strip() if line.startswith("\t") else SWITCHES.get(line)
        if name and line in now and now[line] != state:
            words += [name, state]
    return words


def _features(text: str) -> list[tuple[str, str]]:
    """Line of `ethtool -k` (with its indentation) and state, without those that nobody can switch."""
    found: list[tuple[str, str]] = []
    for line in text.splitlines():
        name, colon, value = line.partition(": ")
        if colon and value.split()[:1] in (["on"], ["off"]) and "[fixed]" not in value:
            found.append((name, value.split()[0]))
    return found


def _devices_of(route: dict[str, Any]) -> set[str]:
    hops = [route, *route.get("nexthops", [])]
    return {str(hop["dev"]) for hop in hops if "dev" in hop}


def _comes_by_itself(row: dict[str, Any]) -> bool:
    """Made by the kernel: IPv6 link-local ones, and those of router advertisements."""
    flagged = any(row.get(flag) for flag in ("temporary", "mngtmpaddr", "autoconf"))
    return row.get("family") == "inet6" and (flagged or row.get("scope") == "link")


def _address(row: dict[str, Any]) -> str:
    """The arguments of `ip addr` for a row of `ip -j addr`."""
    peer = f" peer {row['address']}" if row.get("address") else ""
    words = [f"{row['local']}{peer}/{row['prefixlen']}"]
    for key in ("broadcast", "scope", "label"):
        if row.get(key) and not (key == "label" and row.get("family") == "inet6"):
            words += [key, str(row[key])]
    for kind in ("valid", "preferred"):
        if row.get(f"{kind}_life_time") not in (None, 0xFFFFFFFF):
            words += [f"{kind}_lft", str(row[f"{kind}_life_time"])]
    return " ".join(words + ["noprefixroute"] * bool(row.get("noprefixroute")))
