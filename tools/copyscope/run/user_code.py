# SPDX-License-Identifier: GPL-2.0-only
"""Identify code that a watched program ran in user mode: functions that copy or encrypt, and their callers.

A sample has a process and an address. The mappings of a process are read while the process lives. Mapped
files are kept open, and their build-ids are recorded. For code that was generated at run time, names come
from a perf map in /tmp.

Symbol tables are read after the measurement, because that takes 10 ms or more of CPU time.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import cast

from copyscope.base.stats import gathered
from copyscope.run import code_names
from copyscope.run.code_file import UNREADABLE, File, Mapping, parse_mapping, why_unreadable
from copyscope.run.code_names import PerfMap
from copyscope.run.elf import TableBudget
from copyscope.run.processes import PROC, CpuBudget, read_file
from copyscope.taxonomy import user_code
from copyscope.taxonomy.samples import StackSample
from copyscope.taxonomy.user_code import REPEATED, V8_BUILTIN, copies, is_call

# Largest share of one CPU for reading mappings, and CPU seconds before this limit holds: a program of two
# seconds may load a library after its first segment.
MAPPINGS_CPU_SHARE = 0.001
MAPPINGS_FREE_S = 0.02
# Maximum number of processes with mappings to read, because workers of a program map the same files; and
# maximum number of files to open.
PROCESSES_MAX = 64
FILES_MAX = 256
# Number of the most frequent call sites of copies with source lines, and time limit in seconds of the
# look-up.
SITES_MAX = 16
LINES_TIMEOUT_S = 5.0
GONE = "the processes had ended before their mappings were read"
GENERATED = "JIT-compiled code without a name in /tmp/perf-PID.map"
MAP_TOO_LARGE = "JIT-compiled code: /tmp/perf-PID.map is too large"
TOO_MANY_FILES = f"only the first {FILES_MAX} files with code of the program are read"
JAVA_STUBS = "Java stubs, of which some copy"
NOT_A_CALL = "the value on top of the stack is not a return address"


@dataclass
class CodeFacts:
    """Facts about the code at an address. StackSample has the same keys and explains them."""

    code: str
    build_id: str | None = None
    unknown: str | None = None
    made_with: str | None = None
    copy: str | None = None
    cipher: str | None = None
    function: str | None = None
    framed: bool = False


@dataclass
class CallerFacts:
    """Facts about the function that called a copy. StackSample has the same keys and explains them."""

    caller: str | None = None
    caller_file: str | None = None
    source: str | None = None
    site: tuple[tuple[str, int], int] | None = None
    uncalled: str | None = None


class UserCodeFinder:
    """Finder of the names of sampled code.

    Call read_mappings() while the processes live, then name_samples(), and find_lines() last.
    """

    def __init__(self) -> None:
        self._mapped: dict[int, list[Mapping]] = {}
        self._files: dict[tuple[str, int], File] = {}
        self._maps: dict[int, PerfMap] = {}
        self._budget = CpuBudget(MAPPINGS_CPU_SHARE, MAPPINGS_FREE_S)
        self._tables = TableBudget()

    def files(self) -> Iterable[File]:
        """Read the symbols of all files that were mapped so far, and return the files."""
        for file in self._files.values():
            file.read()
        return self._files.values()

    def read_mappings(self, pids: Iterable[int]) -> None:
        """Read the current mappings of processes, within a small CPU time budget."""
        if not self._budget.allows_use():
            return
        with self._budget:
            for pid in sorted(pids)[:PROCESSES_MAX]:
                self._read_mappings_of(pid)

    def _read_mappings_of(self, pid: int) -> None:
        """Read the mappings of a process, and open its files and its map of generated code."""
        try:
            text = read_file(f"{PROC}/{pid}/maps").decode(errors="surrogateescape")
        except OSError:
            return
        mappings = [mapping for line in text.splitlines() if (mapping := parse_mapping(line)) is not None]
        if mappings:
            self._mapped[pid] = mappings
        for mapping in mappings:
            if mapping.inode and mapping.key not in self._files and len(self._files) < FILES_MAX:
                self._files[mapping.key] = File.of(pid, mapping, self._tables)
        has_generated_code = pid not in self._maps and any(mapping.is_generated for mapping in mappings)
        if has_generated_code and (names := PerfMap.of(pid, self._tables)) is not None:
            self._maps[pid] = names

    def name_samples(self, samples: Iterable[StackSample]) -> None:
        """Add facts about the code to each row in user mode.

        `code` is the file and `function` the function. If the function copies or encrypts, `copy` or `cipher`
        names it, too. `unknown` is the reason why it is unknown whether the code copies. Rows that copy also
        get `caller`, the calling function, or `uncalled`, the reason why it is unknown.
        """
        for row in samples:
            if "pid" in row:
                code = self._identify(row["pid"], row["address"])
                row.update(cast("StackSample", vars(code)))
                if code.copy is not None:
                    row.update(cast("StackSample", vars(self._caller(row, code))))

    def find_lines(self, samples: Sequence[StackSample]) -> None:
        """Add `source` (FILE:LINE) and the name from the debug info to the most frequent call sites."""
        calling_rows = [(row, site) for row in samples if (site := row.get("site")) is not None]
        sites: Counter[tuple[tuple[str, int], int]] = Counter()
        for row, site in calling_rows:
            sites[site] += row["samples"]
        by_file = gathered((key, address) for (key, address), _ in sites.most_common(SITES_MAX))
        end_s = time.monotonic() + LINES_TIMEOUT_S
        lines = {
            (key, address): line
            for key, addresses in by_file.items()
            for address, line in self._files[key].find_lines(addresses, end_s - time.monotonic()).items()
        }
        # Name of a function in the debug info, by its file and its name in the symbol table.
        names: dict[tuple[str | None, str | None], str] = {}
        for row, site in calling_rows:
            name, row["source"] = lines.get(site, (None, None))
            if name is not None:
                names[row["caller_file"], row["caller"]] = name
        for row, _ in calling_rows:
            row["caller"] = names.get((row["caller_file"], row["caller"]), row["caller"])

    def _caller(self, row: StackSample, code: CodeFacts) -> CallerFacts:
        """Find the caller of a copy by the return address.

        If the function has no frame, the return address is on top of the stack. If the function has pushed a
        frame, the return address is next to the frame pointer. V8's builtins always have a frame.
        """
        pid, inline = row["pid"], code.copy == REPEATED
        address = row["address"] if inline else row["framed_back"] if code.framed else row["back"]
        try:
            caller = self._find_caller(pid, address, inline=inline)
            if caller is not None and not code.framed and (caller.caller or "").startswith(V8_BUILTIN):
                caller = self._generated_caller(pid, row["framed_back"] - 1) or caller
        except UNREADABLE as error:
            return CallerFacts(uncalled=why_unreadable(error))
        return caller or CallerFacts(uncalled=NOT_A_CALL)

    def _find_caller(self, pid: int, address: int, *, inline: bool) -> CallerFacts | None:
        """Return the calling function at a return address, or None if no call precedes this address.

        `inline`: the address is not a return address, but an address inside the calling function.
        """
        mapping, file = self._find_mapping(pid, address)
        if mapping is None or file is None or file.elf is None:
            is_unnamed = mapping is not None and mapping.is_generated
            unnamed = CallerFacts(uncalled=GENERATED) if is_unnamed else None
            return self._generated_caller(pid, address if inline else address - 1) or unnamed
        offset = address - mapping.begin + mapping.offset
        # A call has two to seven bytes on x86, and four bytes on arm64.
        if not inline and not is_call(file.elf.bytes_at(offset - 7, 7)):
            return None
        call_address = file.elf.address_of(offset if inline else offset - 1)
        if call_address is None:
            return None
        return CallerFacts(file.function_at(call_address), file.name, site=(mapping.key, call_address))

    def _generated_caller(self, pid: int, address: int) -> CallerFacts | None:
        """Return the calling function if its code was generated at run time, or None if it has no name."""
        name = self._generated_name(pid, address)
        if name is None:
            return None
        caller, source = code_names.split_name(name)
        return CallerFacts(caller, "memory", source)

    def _generated_name(self, pid: int, address: int) -> str | None:
        """Return the name of generated code at an address, or None."""
        names = self._maps.get(pid)
        return None if names is None else names.name_at(address)

    def _find_mapping(self, pid: int, address: int) -> tuple[Mapping | None, File | None]:
        """Return the mapping at an address of a process, and the mapped file with its symbols read.

        A child that forked without executing another program has the mappings of its parent. If the child
        ended before its mappings were read, the mappings of other processes are used, unless they disagree.
        """
        if pid in self._mapped:
            mapping = find_mapped(self._mapped[pid], address)
        else:
            candidates = {find_mapped(mappings, address) for mappings in self._mapped.values()} - {None}
            mapping = candidates.pop() if len(candidates) == 1 else None
        file = None if mapping is None else self._files.get(mapping.key)
        if file is not None:
            file.read()
        return mapping, file

    def _identify(self, pid: int, address: int) -> CodeFacts:
        """Return facts about the code at an address of a process."""
        if pid not in self._mapped:
            self._read_mappings_of(pid)
        mapping, file = self._find_mapping(pid, address)
        if mapping is None and pid not in self._mapped:
            return CodeFacts("?", unknown=GONE)
        if mapping is None:
            # The mappings were read before this code was loaded, or after it was unloaded.
            return CodeFacts("?", unknown="the code was not mapped when the mappings were read")
        if file is None or file.elf is None:
            return self._identify_generated(pid, address, mapping, file)
        return identify_in_file(file, address - mapping.begin + mapping.offset)

    def _identify_generated(self, pid: int, address: int, mapping: Mapping, file: File | None) -> CodeFacts:
        """Return facts about code outside any ELF file. Copying code that Java generates has a frame."""
        facts = CodeFacts(mapping.path or "memory" if file is None else file.name)
        if mapping.path.startswith("[v"):  # [vdso] reads clocks
            return facts
        name = self._generated_name(pid, address)
        if name is None:
            why = TOO_MANY_FILES if file is None else file.why
            return replace(facts, unknown=self._why_nameless(pid) if mapping.is_generated else why)
        facts.function = code_names.split_name(name)[0]
        if copies(name):
            return replace(facts, copy=name, framed=True)
        if user_code.encrypts(name):
            return replace(facts, cipher=name)
        return replace(facts, unknown=JAVA_STUBS if name.startswith(code_names.STUBS) else None)

    def _why_nameless(self, pid: int) -> str:
        """Return the reason why a process's generated code has no name."""
        names = self._maps.get(pid)
        return MAP_TOO_LARGE if names is not None and names.is_too_large else GENERATED


def find_mapped(mappings: Iterable[Mapping], address: int) -> Mapping | None:
    """Return the mapping that contains an address."""
    return next((mapping for mapping in mappings if mapping.begin <= address < mapping.end), None)


def identify_in_file(file: File, offset: int) -> CodeFacts:
    """Return facts about the code at an offset in an ELF file whose symbols have been read."""
    facts = CodeFacts(file.name, unknown=file.why, made_with=file.language)
    try:
        facts.build_id = file.header().build_id
        facts.copy, facts.framed = file.copy_at(offset)
    except UNREADABLE as error:
        facts.unknown = why_unreadable(error)
    # Broken tables affect only ciphers and names, not copies.
    with contextlib.suppress(*UNREADABLE):
        facts.function = file.name_at(offset)
        facts.cipher = None if facts.copy else file.cipher_at(offset)
    if facts.copy or facts.cipher:
        facts.unknown = None
    return facts
