"""The functions of a kernel module, by section and offset: what its ELF file says. Pure.

Where the kernel put the sections is known in the guest only, which adds the two (src/guest/symbols.c).
"""

from copyscope.run.program.elf_file import ElfFile


def functions(content: bytes) -> bytes:
    """`SECTION OFFSET NAME` for each function, ordered. Raises RunError for what is no such file."""
    rows = ElfFile.of(content).code()
    return "".join(f"{section} {offset:x} {name}\n" for section, offset, name in rows).encode()
