"""Which functions of a program's own memory copy: by name, of C libraries and of languages. Pure."""

import platform
import re

# Of libc, with its variants for a processor (__memmove_avx_unaligned_erms) and those that check; of compilers
# and sanitizers; of Go; of Java; Rust's own where it has no libc.
COPIES = re.compile(
    r"_{0,2}(?:folly_|intel_|aeabi_|libc_|GI_+|asan_|interceptor_)?"
    r"(?:w?memp?cpy|w?memmove|bcopy|st[rp]n?cpy|strlcpy)(?:\d|_\w+)?(?:\.(?:constprop|isra|part)\.\d+)*"
    r"|runtime\.memmove"
    r"|(?:arrayof_)?j(?:byte|short|int|long)_(?:disjoint_|conjoint_)?arraycopy(?:_\w+)?"
    r"|_(?:ZN|R\w*)17compiler_builtins3mem\d+mem(?:cpy|move)\w*"
)
# x86: rep movsb, movsl, movsq: a loop that copies, in whichever function.
REPEATED_MOVES = (b"\xf3\xa4", b"\xf3\xa5", b"\xf3\x48\xa5")
REPEATED = "rep movs"
# V8 calls libc's memmove() by functions of its own, so called, for what JavaScript calls.
V8_BUILTIN = "Builtins_"


def copies(function: str) -> bool:
    """Whether all that a function of this name does is to copy."""
    return COPIES.fullmatch(function.partition("@")[0]) is not None


def is_repeated_move(code: bytes) -> bool:
    """Whether the instruction that begins here copies by itself."""
    return code.startswith(REPEATED_MOVES)


def is_call(code: bytes) -> bool:
    """Whether these seven bytes end with a call: before a return address there is one.

    x86: E8 and four bytes, or FF with 2 in the middle of its second byte; arm64: BL, or BLR.
    """
    if len(code) != 7:
        return False
    if platform.machine() != "x86_64":
        word = int.from_bytes(code[3:], "little")
        return word >> 26 == 0b100101 or word & 0xFFFFFC1F == 0xD63F0000
    return code[2] == 0xE8 or any(code[at] == 0xFF and code[at + 1] >> 3 & 7 == 2 for at in range(6))


def is_framed(code: bytes) -> bool:
    """Whether a function that begins so puts a frame on the stack, which a register then knows.

    x86: after ENDBR64, if that is there, PUSH RBP and MOV RBP, RSP; arm64: STP X29, X30, [SP, #-N]!
    """
    if platform.machine() != "x86_64":
        return len(code) >= 4 and int.from_bytes(code[:4], "little") & 0xFFC07FFF == 0xA9807BFD
    return code.removeprefix(b"\xf3\x0f\x1e\xfa").startswith((b"\x55\x48\x89\xe5", b"\x55\x48\x8b\xec"))
