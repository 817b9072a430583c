"""Where a watched program was in user mode, by name: whether that code copies, who called it, or encrypts.

The kernel gives process and address. What is mapped there is looked up while the process lives: a file, which
is kept open, and found by its build-id later, too; or code that was made as it ran, which a file of its own
names.

Tables of symbols are read when measuring is over: that takes 10 ms and more, for which a program on the same
CPU would wait.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Iterable, Sequence

from copyscope.grouping import gathered
from copyscope.record.session_result import Record
from copyscope.run import perf_map
from copyscope.run.code_file import UNREADABLE, File, Mapping, parse_mapping, why_unreadable
from copyscope.run.perf_map import PerfMap
from copyscope.run.processes import PROC, Seldom, read_file
from copyscope.taxonomy import ciphers
from copyscope.taxonomy.user_copies import REPEATED, V8_BUILTIN, copies, is_call

# Of one CPU, what reading the mappings takes at most.
LOOKS_SHARE = 0.001
# Of the processes of a program so many are looked at: workers have the same files.
PROCESSES_MAX = 64
FILES_MAX = 256
# Of all places that call a copy, those that call most have their lines looked up, as far as that is quick.
LINES_MAX = 16
LINES_S = 5.0
GONE = "its processes had ended before their mappings were read"
GENERATED = "JIT-compiled code, and no /tmp/perf-PID.map names it"
ONE_OF_MANY = f"of files that hold its code, the first {FILES_MAX} are looked at"
STUBS = "stubs of Java, of which some copy"
NOT_A_CALL = "what is on top of the stack is no return address"

UNCALLED: Record = {"caller": None, "caller_file": None, "source": None, "site": None, "uncalled": None}


class UserCode:
    """look() while the processes live, then name(), at last find_lines()."""

    def __init__(self) -> None:
        self._mapped: dict[int, list[Mapping]] = {}
        self._files: dict[tuple[str, int], File] = {}
        self._maps: dict[int, PerfMap] = {}
        self._looks = Seldom(LOOKS_SHARE)

    def files(self) -> Iterable[File]:
        """All that were seen so far, read."""
        for file in self._files.values():
            file.read()
        return self._files.values()

    def look(self, pids: Iterable[int]) -> None:
        """What they have mapped now; so seldom that it costs next to nothing."""
        if not self._looks.are_cheap():
            return
        with self._looks:
            for pid in sorted(pids)[:PROCESSES_MAX]:
                self._look_at(pid)

    def _look_at(self, pid: int) -> None:
        try:
            text = read_file(f"{PROC}/{pid}/maps").decode(errors="surrogateescape")
        except OSError:
            return
        found = [one for line in text.splitlines() if (one := parse_mapping(line)) is not None]
        if found:
            self._mapped[pid] = found
        for one in found:
            if one.inode and one.key not in self._files and len(self._files) < FILES_MAX:
                self._files[one.key] = File.of(pid, one)
        has_made = pid not in self._maps and any(one.is_made for one in found)
        if has_made and (names := PerfMap.of(pid)) is not None:
            self._maps[pid] = names

    def name(self, samples: Iterable[Record]) -> None:
        """To each row in user mode: `code`, its file; `copy` or `cipher`, the function; `unknown`: why.

        To each that copies: `caller`, who called that function, or why it is not known as `uncalled`.
        """
        for row in samples:
            if "pid" in row:
                row.update(self._found(row["pid"], row["address"]))
                if row["copy"] is not None:
                    row.update(UNCALLED | self._caller(row))

    def find_lines(self, samples: Sequence[Record]) -> None:
        """`source`, where it is written, of the callers that call most, and their names as that has them."""
        sites: Counter[tuple[tuple[str, int], int]] = Counter()
        for row in samples:
            if row.get("site") is not None:
                sites[row["site"]] += row["samples"]
        most = gathered((key, address) for (key, address), _ in sites.most_common(LINES_MAX))
        until_s = time.monotonic() + LINES_S
        found = {
            (key, address): told
            for key, addresses in most.items()
            for address, told in self._files[key].lines(addresses, until_s - time.monotonic()).items()
        }
        names: dict[tuple[str, str], str] = {}
        called = [row for row in samples if row.get("site") is not None]
        for row in called:
            name, row["source"] = found.get(row["site"], (None, None))
            if name is not None:
                names[row["caller_file"], row["caller"]] = name
        for row in called:
            row["caller"] = names.get((row["caller_file"], row["caller"]), row["caller"])

    def _caller(self, row: Record) -> Record:
        """By what is on top of the stack: a function that calls none and pushes nothing goes back there.

        One that has put a frame there goes back to what is beside that. Builtins of V8 all have a frame.
        """
        pid, inline = row["pid"], row["copy"] == REPEATED
        address = row["address"] if inline else row["framed_back"] if row["framed"] else row["back"]
        try:
            found = self._called_from(pid, address, inline=inline)
            if not row["framed"] and (found.get("caller") or "").startswith(V8_BUILTIN):
                found |= self._made(pid, row["framed_back"] - 1)
        except UNREADABLE as error:
            return {"uncalled": why_unreadable(error)}
        return found or {"uncalled": NOT_A_CALL}

    def _called_from(self, pid: int, address: int, *, inline: bool) -> Record:
        """Who is there, or called from there; empty where no call stands before it."""
        mapping, file = self._place(pid, address)
        if mapping is None or file is None or file.elf is None:
            unnamed = {"uncalled": GENERATED} if mapping is not None and mapping.is_made else {}
            return self._made(pid, address if inline else address - 1) or unnamed
        offset = address - mapping.begin + mapping.offset
        # a call has two to seven bytes, or four
        if not inline and not is_call(file.elf.bytes_at(offset - 7, 7)):
            return {}
        place = file.elf.address_of(offset if inline else offset - 1)
        if place is None:
            return {}
        return {
            "caller": file.function_at(place),
            "caller_file": file.name,
            "site": (mapping.key, place),
        }

    def _made(self, pid: int, address: int) -> Record:
        """The same of code that was made as the program ran."""
        name = self._made_name(pid, address)
        if name is None:
            return {}
        caller, source = perf_map.told(name)
        return {"caller": caller, "caller_file": "memory", "source": source, "site": None}

    def _made_name(self, pid: int, address: int) -> str | None:
        names = self._maps.get(pid)
        return None if names is None else names.name_at(address)

    def _place(self, pid: int, address: int) -> tuple[Mapping | None, File | None]:
        """What is mapped there, and its file, read."""
        mapped = self._mapped.get(pid, ())
        mapping = next((one for one in mapped if one.begin <= address < one.end), None)
        file = None if mapping is None else self._files.get(mapping.key)
        if file is not None:
            file.read()
        return mapping, file

    def _found(self, pid: int, address: int) -> Record:
        found: Record = {"copy": None, "framed": False, "cipher": None}
        found |= {"code": "?", "build_id": None, "unknown": None}
        if pid not in self._mapped:
            self._look_at(pid)
        if pid not in self._mapped:
            return found | {"unknown": GONE}
        mapping, file = self._place(pid, address)
        if mapping is None:
            # Read after code was loaded or thrown away.
            return found | {"unknown": "it was not mapped when the mappings were read"}
        if file is None or file.elf is None:
            return found | self._found_made(pid, address, mapping, file)
        return found | found_in(file, address - mapping.begin + mapping.offset)

    def _found_made(self, pid: int, address: int, mapping: Mapping, file: File | None) -> Record:
        """The same of code that is in no ELF file. What Java makes to copy has a frame."""
        found: Record = {"code": mapping.path or "memory" if file is None else file.name}
        if mapping.path.startswith("[v"):  # [vdso] reads clocks
            return found
        name = self._made_name(pid, address)
        if name is None:
            why = ONE_OF_MANY if file is None else file.why
            return found | {"unknown": GENERATED if mapping.is_made else why}
        if copies(name):
            return found | {"copy": name, "framed": True}
        if ciphers.encrypts(name):
            return found | {"cipher": name}
        return found | {"unknown": STUBS if name.startswith(perf_map.STUBS) else None}


def found_in(file: File, offset: int) -> Record:
    """The same of a place in an ELF file, read."""
    found: Record = {"code": file.name, "unknown": file.why, "made_with": file.made_with}
    found |= {"copy": None, "cipher": None}
    try:
        found["build_id"] = file.header().build_id
        found["copy"], found["framed"] = file.copy_at(offset)
    except UNREADABLE as error:
        found["unknown"] = why_unreadable(error)
    # An unwind table that is broken says nothing of copies.
    with contextlib.suppress(*UNREADABLE):
        found["cipher"] = None if found["copy"] else file.cipher_at(offset)
    return found | ({"unknown": None} if found["copy"] or found["cipher"] else {})
