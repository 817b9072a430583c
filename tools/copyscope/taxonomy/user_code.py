# SPDX-License-Identifier: GPL-2.0-only
"""Recognise functions of user code that copy or encrypt, by their names or instructions."""

import platform
import re

# Recognise functions that copy in a program's own memory by their names. Pure.

# Names of copying functions in libc (with variants for processors, such as __memmove_avx_unaligned_erms, and
# checking variants), in compilers and sanitizers, in Go, in Java, and in Rust without libc.
COPY_NAMES = re.compile(
    r"_{0,2}(?:folly_|intel_|aeabi_|libc_|GI_+|asan_|interceptor_)?"
    r"(?:w?memp?cpy|w?memmove|bcopy|st[rp]n?cpy|strlcpy)(?:\d|_\w+)?(?:\.(?:constprop|isra|part)\.\d+)*"
    r"|runtime\.memmove"
    r"|(?:arrayof_)?j(?:byte|short|int|long)_(?:disjoint_|conjoint_)?arraycopy(?:_\w+)?"
    r"|_(?:ZN|R\w*)17compiler_builtins3mem\d+mem(?:cpy|move)\w*"
)
# Encodings of x86's rep movsb, movsl and movsq, which copy in a loop.
REPEATED_MOVES = (b"\xf3\xa4", b"\xf3\xa5", b"\xf3\x48\xa5")
REPEATED = "rep movs"
# Prefix of V8's builtins, which call libc's memmove() on behalf of JavaScript code.
V8_BUILTIN = "Builtins_"


def copies(function: str) -> bool:
    """Return True if the name of a function shows that it only copies."""
    return COPY_NAMES.fullmatch(function.partition("@")[0]) is not None


def is_repeated_move(code: bytes) -> bool:
    """Return True if machine code begins with a copy instruction (`rep movs`)."""
    return code.startswith(REPEATED_MOVES)


def is_call(code: bytes) -> bool:
    """Return True if seven bytes of machine code end with a call, as the bytes before a return address do.

    x86: E8 and four bytes, or FF with 2 in the middle of its second byte; arm64: BL or BLR.
    """
    if len(code) != 7:
        return False
    if platform.machine() != "x86_64":
        word = int.from_bytes(code[3:], "little")
        return word >> 26 == 0b100101 or word & 0xFFFFFC1F == 0xD63F0000
    return code[2] == 0xE8 or any(code[index] == 0xFF and code[index + 1] >> 3 & 7 == 2 for index in range(6))


def is_framed(code: bytes) -> bool:
    """Return True if a function that begins with this code pushes a frame and sets the frame pointer.

    x86: PUSH RBP and MOV RBP, RSP, after an optional ENDBR64; arm64: STP X29, X30, [SP, #-N]!
    """
    if platform.machine() != "x86_64":
        return len(code) >= 4 and int.from_bytes(code[:4], "little") & 0xFFC07FFF == 0xA9807BFD
    return code.removeprefix(b"\xf3\x0f\x1e\xfa").startswith((b"\x55\x48\x89\xe5", b"\x55\x48\x8b\xec"))


# Recognise functions that encrypt or decrypt by their names, or by their instructions. Pure.
#
# Bulk ciphers and the authentication of each byte (GHASH, Poly1305) count; handshakes and hashes do not.

# Parts of the names of functions that derive or set keys, or that do not encrypt bulk data.
NOT_A_CIPHER = r"(?!\w*(?:_set_|_key|_init|_setup|bcrypt|rsa_))"
# Rust's ring and aws-lc contain BoringSSL's code, with a version as the prefix of each name.
PREFIX = r"(?:_|ossl_|ring_core_\d\w*?__|aws_lc_(?:fips_)?\d+_\d+_\d+_)?"
# Names of ciphers in OpenSSL, its forks and NSS, then in nettle (GnuTLS) and Mbed TLS.
CIPHERS_OF_C = (
    rf"{PREFIX}(?:"
    r"(?:vp|bs|asm_|intel_|mbedtls_internal_)?aes\w*_(?:enc|dec|crypt|ctr|ghash|cbc|ecb|ccm|ocb|xts)\w*"
    r"|gcm_g(?:hash|mult)\w*|(?:crypto_)?(?:gcm|ccm|cbc|cfb|ctr|ocb|xts)128_\w*crypt\w*"
    r"|(?:hacl_)?chacha(?:20)?(?:_?poly1305)?(?:_\w+)?|(?:crypto_)?poly1305_\w+"
    r"|(?:asm_)?rc4|(?:aria|camellia|des|rc4|sm4|rijndael)_\w*crypt\w*"
    r"|intel_aes_gcm\w*)"
    r"|_?nettle_(?:\w+_)?(?:(?:en|de)?crypt(?:16|_\w+)?|chacha_core\w*|ghash_update\w*|poly1305_block\w*)"
    r"|mbedtls_(?:aes|aesni|aesce|aria|camellia|ccm|chacha20|chachapoly|gcm|poly1305)_\w*(?:crypt|update|mult)\w*"
)
CIPHERS_OF_GO = (
    r"(?:vendor/)?(?:golang\.org/x/)?crypto/(?:internal/)?(?:fips140/)?"
    r"(?:aes|cipher|chacha20|chacha20poly1305|des|poly1305|rc4)(?:/gcm)?\.(?!.*(?:expandKey|New)).+"
)
CIPHER_NAMES = re.compile(rf"{NOT_A_CIPHER}(?:(?i:{CIPHERS_OF_C})|{CIPHERS_OF_GO})")

# File names of libraries of ciphers. libgnutls.so contains ciphers of OpenSSL.
CIPHER_LIBRARIES = re.compile(r"lib(?:crypto|freebl\w*|gcrypt|gnutls|mbedcrypto|nettle|wolfssl)[.-]")
# Minimum number of cipher instructions in a cipher: a single match may be a coincidence of other bytes.
INSTRUCTIONS_MIN = 2
# Minimum number of AES instructions in a function that encrypts several blocks at once.
UNROLLED_INSTRUCTIONS_MIN = 16
# Suffix of the name of an unrecognised function in a library of ciphers: a cipher, a handshake or a hash.
AS_A_WHOLE = " as a whole"


def _bytes(mask: int, value: int) -> bytes:
    """Return a regular expression for all bytes that equal `value` after `& mask`."""
    return b"[" + b"".join(b"\\x%02x" % byte for byte in range(256) if byte & mask == value) + b"]"


# Encodings of an opcode group in AVX (VEX) and AVX-512 (EVEX) with prefix 66 (Intel SDM, 2.3 and 2.7).
VEX = {group: b"\xc4" + _bytes(31, group) + _bytes(3, 1) for group in (2, 3)}
EVEX = {group: b"\x62" + _bytes(15, group) + _bytes(7, 5) + b"." for group in (2, 3)}
# Patterns of AESENC, AESENCLAST, AESDEC and AESDECLAST, and of PCLMULQDQ, which computes GHASH (and CRC32).
AES = rb"(?:\x66[\x40-\x4f]?\x0f\x38|%b|%b)[\xdc-\xdf]" % (VEX[2], EVEX[2])
CARRYLESS_PRODUCT = rb"(?:\x66[\x40-\x4f]?\x0f\x3a|%b|%b)\x44" % (VEX[3], EVEX[3])
# Ciphers with the instructions that their code must contain. ChaCha20: a rotation to the left by 12, as two
# shifts or as VPROLD. Poly1305: shifts by 26, or by 44 and 42, the sizes in bits of its partial numbers.
PATTERNS_OF_X86: tuple[tuple[str, tuple[bytes, ...]], ...] = (
    ("ChaCha20", (rb"\x72[\xf0-\xf7]\x0c", rb"\x72[\xd0-\xd7]\x14")),
    ("ChaCha20", (rb"\x62...\x72[\xc8-\xcf]\x0c",)),
    ("Poly1305", (rb"\x73[\xd0-\xd7]\x1a",)),
    ("Poly1305", (rb"\x73[\xd0-\xd7]\x2a", rb"\x73[\xd0-\xd7]\x2c")),
)


def encrypts(function: str) -> bool:
    """Return True if the name of a function shows that it is a cipher or part of a cipher."""
    return CIPHER_NAMES.fullmatch(function.partition("@")[0]) is not None


def is_library(file: str) -> bool:
    """Return True if the name of a file shows that it is a cipher library."""
    return CIPHER_LIBRARIES.match(file) is not None


def recognise_cipher(code: bytes, name: str | None, file: str, *, x86: bool) -> str | None:
    """Return the cipher that the instructions of a function show, or None.

    `code`: machine code of the function. `name`: its name, or None. `file`: name of its file. `x86`: False
    means arm64.

    Outside cipher libraries, many AES instructions are required, because a hash function for tables may
    have a few (Rust's ahash). In named functions (C++, Rust) only AES counts: random numbers and handshakes
    contain the other instructions, too.
    """
    library = name is None and is_library(file)
    instructions_min = INSTRUCTIONS_MIN if library else UNROLLED_INSTRUCTIONS_MIN
    recognise = _recognise_on_x86 if x86 else _recognise_on_arm
    cipher = recognise(code, instructions_min, product=library)
    if name is not None:
        return name if cipher == "AES" else None
    if cipher is None:
        return f"{file}{AS_A_WHOLE}" if library else None
    return f"{cipher} in {file}"


def is_whole_library(cipher: str) -> bool:
    """Return True if `cipher` names only a library, because its functions were not recognised."""
    return cipher.endswith(AS_A_WHOLE)


def _recognise_on_x86(code: bytes, instructions_min: int, *, product: bool) -> str | None:
    """Return the cipher in x86 code with at least `instructions_min` AES instructions, or None.

    `product`: count carry-less products, too. ChaCha20 and Poly1305 have patterns of their own.
    """

    def count(pattern: bytes) -> int:
        return len(re.findall(pattern, code, re.DOTALL))

    if count(AES) + (count(CARRYLESS_PRODUCT) if product else 0) >= instructions_min:
        return "AES"
    for name, patterns in PATTERNS_OF_X86:
        if all(count(pattern) >= INSTRUCTIONS_MIN for pattern in patterns):
            return name
    return None


def _recognise_on_arm(code: bytes, instructions_min: int, *, product: bool) -> str | None:
    """Return `AES` for arm64 code with at least `instructions_min` instructions AESE or AESD, else None.

    `product`: count 64-bit PMULL, too. ChaCha20 and Poly1305 have no instructions of their own.
    """
    words = memoryview(code[: len(code) // 4 * 4]).cast("I")
    instructions = sum(
        word & 0xFFFFCC00 == 0x4E284800 or (product and word & 0xBFE0FC00 == 0x0EE0E000) for word in words
    )
    return "AES" if instructions >= instructions_min else None
