"""Which functions of a program encrypt or decrypt: by name, else by the instructions that they have. Pure.

Ciphers of a stream and what authenticates each of its bytes (GHASH, Poly1305); no handshake, no hash.
"""

import re

# What builds a key or asks for one, and what is no cipher.
OTHER = r"(?!\w*(?:_set_|_key|_init|_setup|bcrypt|rsa_))"
# Rust's ring and aws-lc have the code of BoringSSL, with a version before each name.
PREFIX = r"(?:_|ossl_|ring_core_\d\w*?__|aws_lc_(?:fips_)?\d+_\d+_\d+_)?"
# OpenSSL and its kin; NSS; then nettle (GnuTLS), Mbed TLS.
OF_C = (
    rf"{PREFIX}(?:"
    r"(?:vp|bs|asm_|intel_|mbedtls_internal_)?aes\w*_(?:enc|dec|crypt|ctr|ghash|cbc|ecb|ccm|ocb|xts)\w*"
    r"|gcm_g(?:hash|mult)\w*|(?:crypto_)?(?:gcm|ccm|cbc|cfb|ctr|ocb|xts)128_\w*crypt\w*"
    r"|(?:hacl_)?chacha(?:20)?(?:_?poly1305)?(?:_\w+)?|(?:crypto_)?poly1305_\w+"
    r"|(?:asm_)?rc4|(?:aria|camellia|des|rc4|sm4|rijndael)_\w*crypt\w*"
    r"|intel_aes_gcm\w*)"
    r"|_?nettle_(?:\w+_)?(?:(?:en|de)?crypt(?:16|_\w+)?|chacha_core\w*|ghash_update\w*|poly1305_block\w*)"
    r"|mbedtls_(?:aes|aesni|aesce|aria|camellia|ccm|chacha20|chachapoly|gcm|poly1305)_\w*(?:crypt|update|mult)\w*"
)
OF_GO = (
    r"(?:vendor/)?(?:golang\.org/x/)?crypto/(?:internal/)?(?:fips140/)?"
    r"(?:aes|cipher|chacha20|chacha20poly1305|des|poly1305|rc4)(?:/gcm)?\.(?!.*(?:expandKey|New)).+"
)
CIPHERS = re.compile(rf"{OTHER}(?:(?i:{OF_C})|{OF_GO})")

# Without symbols their functions are told apart by their instructions; in libgnutls.so are those of OpenSSL.
LIBRARIES = re.compile(r"lib(?:crypto|freebl\w*|gcrypt|gnutls|mbedcrypto|nettle|wolfssl)[.-]")
# A function that has fewer of them has none: a few bytes in a row may look like one.
INSTRUCTIONS_LEAST = 2
# As many of AES a function has that encrypts several blocks at once.
UNROLLED_LEAST = 16
# The rest of such a library may be another cipher, handshakes, hashes.
AS_A_WHOLE = " as a whole"


def _bytes(mask: int, value: int) -> bytes:
    """A class of all bytes that have this value under this mask."""
    return b"[" + b"".join(b"\\x%02x" % byte for byte in range(256) if byte & mask == value) + b"]"


# How AVX and AVX-512 write an instruction of a group of opcodes; pp of both is 66 (Intel SDM, 2.3 and 2.7).
VEX = {group: b"\xc4" + _bytes(31, group) + _bytes(3, 1) for group in (2, 3)}
EVEX = {group: b"\x62" + _bytes(15, group) + _bytes(7, 5) + b"." for group in (2, 3)}
# AESENC, AESENCLAST, AESDEC, AESDECLAST; PCLMULQDQ, which GHASH is made of, and CRC32.
AES = rb"(?:\x66[\x40-\x4f]?\x0f\x38|%b|%b)[\xdc-\xdf]" % (VEX[2], EVEX[2])
PRODUCT = rb"(?:\x66[\x40-\x4f]?\x0f\x3a|%b|%b)\x44" % (VEX[3], EVEX[3])
# A cipher, and what a function has all of that is one: rotations to the left by 12 as two shifts, or as
# VPROLD; shifts by the 26, or 44 and 42, bits that Poly1305 calculates in.
OF_X86: tuple[tuple[str, tuple[bytes, ...]], ...] = (
    ("ChaCha20", (rb"\x72[\xf0-\xf7]\x0c", rb"\x72[\xd0-\xd7]\x14")),
    ("ChaCha20", (rb"\x62...\x72[\xc8-\xcf]\x0c",)),
    ("Poly1305", (rb"\x73[\xd0-\xd7]\x1a",)),
    ("Poly1305", (rb"\x73[\xd0-\xd7]\x2a", rb"\x73[\xd0-\xd7]\x2c")),
)


def encrypts(function: str) -> bool:
    """Whether a function of this name is a cipher, or a part of one."""
    return CIPHERS.fullmatch(function.partition("@")[0]) is not None


def is_library(file: str) -> bool:
    """Whether a file of this name is a library of ciphers."""
    return LIBRARIES.match(file) is not None


def of_code(code: bytes, name: str | None, file: str, *, x86: bool) -> str | None:
    """What a function encrypts with that no name says it of; in a library of ciphers that may not show.

    A hash of a table may use a few AES instructions (Rust's ahash): elsewhere it takes a cipher's many. Of a
    named function (C++, Rust) these alone count: the others random numbers and handshakes have, too.
    """
    library = name is None and is_library(file)
    least = INSTRUCTIONS_LEAST if library else UNROLLED_LEAST
    found = _of_x86(code, least, product=library) if x86 else _of_arm(code, least, product=library)
    if name is not None:
        return name if found == "AES" else None
    if found is None:
        return f"{file}{AS_A_WHOLE}" if library else None
    return f"{found} in {file}"


def is_whole(cipher: str) -> bool:
    """Whether nothing is known of it but the library."""
    return cipher.endswith(AS_A_WHOLE)


def _of_x86(code: bytes, least: int, *, product: bool) -> str | None:
    def count(pattern: bytes) -> int:
        return len(re.findall(pattern, code, re.DOTALL))

    if count(AES) + (count(PRODUCT) if product else 0) >= least:
        return "AES"
    for name, patterns in OF_X86:
        if all(count(pattern) >= INSTRUCTIONS_LEAST for pattern in patterns):
            return name
    return None


def _of_arm(code: bytes, least: int, *, product: bool) -> str | None:
    """AESE, AESD and their MixColumns; PMULL of 64 bits. ChaCha20 and Poly1305 have nothing of their own."""
    words = memoryview(code[: len(code) // 4 * 4]).cast("I")
    found = sum(
        one & 0xFFFFCC00 == 0x4E284800 or (product and one & 0xBFE0FC00 == 0x0EE0E000) for one in words
    )
    return "AES" if found >= least else None
