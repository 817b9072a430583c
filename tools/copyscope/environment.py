"""The environment of root's programs: what the caller's says of programs, libraries and Python stays outside.

sudo does most of this; `sudo -E`, a shell of root's and a container do not. A command that is watched is the
caller's, and gets the caller's environment back.
"""

from collections.abc import Mapping, MutableMapping

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# What says how something looks, who called, and where files go.
KEPT = (
    *("COLORTERM", "COLUMNS", "HOME", "LANG", "LANGUAGE", "LINES", "LOGNAME", "NO_COLOR"),
    *("SUDO_GID", "SUDO_UID", "SUDO_USER", "TERM", "TMPDIR", "TZ", "USER"),
    # What is fetched has a hash or a signature that is checked, whoever passed it on.
    *("all_proxy", "http_proxy", "https_proxy", "no_proxy"),
    *("ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
)
KEPT_PREFIXES = ("LC_", "COPYSCOPE_")
# Under this prefix a variable waits for the command that it is given back to.
CALLERS = "COPYSCOPE_CALLERS_"
SIZES = ("COLUMNS", "LINES")


def clean(environment: MutableMapping[str, str], *, is_root: bool) -> None:
    """From here on: root's programs get root's, anybody else's what they were called with."""
    found = without_odd_sizes(of_caller(environment))
    environment.clear()
    environment.update(for_root(found) if is_root else found)


def for_root(environment: Mapping[str, str]) -> dict[str, str]:
    """What root's programs get; the rest is there under another name."""
    found = {"PATH": PATH}
    for name, value in of_caller(environment).items():
        if name in KEPT or name.startswith(KEPT_PREFIXES):
            found[name] = value
        else:
            found[CALLERS + name] = value
    return found


def of_caller(environment: Mapping[str, str]) -> dict[str, str]:
    """What the caller's own programs get: as it was before for_root()."""
    # Sorted: what waited under another name comes last, and wins.
    pairs = sorted(environment.items(), key=lambda pair: pair[0].startswith(CALLERS))
    return {name.removeprefix(CALLERS): value for name, value in pairs}


def without_odd_sizes(environment: Mapping[str, str]) -> dict[str, str]:
    """COLUMNS and LINES are numbers that a terminal can have, or not there: they are read by others."""
    return {
        name: value
        for name, value in environment.items()
        if name not in SIZES or (value.isascii() and value.isdecimal() and 0 < len(value) <= 4)
    }
