"""Ciphers in a watched program: which functions these are, by name or instruction, and what is not known."""

from typing import Any

import pytest
from builders.watched import watched_record
from copyscope.ledger.derive import derive
from copyscope.taxonomy.ciphers import encrypts, is_library, of_code
from copyscope.taxonomy.samples import to_record, user_code
from copyscope.taxonomy.taxonomy import Taxonomy

Record = dict[str, Any]


@pytest.mark.parametrize(
    "name",
    [
        *("aesni_ctr32_encrypt_blocks", "aesni_gcm_encrypt", "_aesni_ctr32_ghash_6x", "vpaes_cbc_encrypt"),
        *("aes_gcm_enc_update_vaes_avx2", "ossl_aes_gcm_encrypt_avx512", "AES_encrypt", "gcm_ghash_avx"),
        *("CRYPTO_gcm128_encrypt_ctr32", "ChaCha20_8x", "poly1305_blocks_vpmadd52_4x", "aes_v8_encrypt"),
        *("ring_core_0_17_14__aes_hw_ctr32_encrypt_blocks", "ring_core_0_17_8__chacha20_poly1305_seal_avx2"),
        *("aws_lc_0_25_0_aes_hw_encrypt", "aws_lc_fips_0_13_4_chacha20_poly1305_open", "RC4"),
        *("_nettle_aes128_encrypt_aesni", "nettle_gcm_decrypt", "_nettle_chacha_core@@NETTLE_INTERNAL_8_6"),
        *("mbedtls_aesni_crypt_ecb", "mbedtls_gcm_update", "mbedtls_internal_aes_encrypt"),
        *("intel_aes_gcmENC", "rijndael_encryptCBC"),
        *(
            "crypto/internal/fips140/aes/gcm.gcmAesEnc",
            "crypto/aes.gcmAesDec.abi0",
            "crypto/aes.encryptBlockAsm",
        ),
        "vendor/golang.org/x/crypto/chacha20poly1305.chacha20Poly1305Seal",
        "vendor/golang.org/x/crypto/internal/poly1305.(*macGeneric).Write",
    ],
)
def test_functions_that_encrypt(name: str) -> None:
    assert encrypts(name)


@pytest.mark.parametrize(
    "name",
    [
        *("AES_set_encrypt_key", "aesni_set_encrypt_key", "aes_hw_set_encrypt_key", "SHA256_Update"),
        *("sha512_block_data_order_avx2", "bn_mulx4x_mont", "ecp_nistz256_mul_mont", "RSA_private_encrypt"),
        *("EVP_EncryptUpdate", "SSL_write", "nettle_rsa_encrypt", "nettle_aes128_set_encrypt_key", "memcpy"),
        *("crypto/sha256.block", "crypto/tls.(*Conn).Write", "crypto/internal/fips140/aes.expandKeyAsm"),
        *("runtime.memmove", "main", "encrypt_record", "crypt", "sha256_compress"),
    ],
)
def test_functions_that_are_no_cipher(name: str) -> None:
    assert not encrypts(name)


@pytest.mark.parametrize(
    ("code", "cipher"),
    [
        ("660f38dcc1 660f38ddc1", "AES in libcrypto.so.3"),  # aesenc, aesenclast
        ("c4e279dcc1 c4e279ddc1", "AES in libcrypto.so.3"),  # vaesenc
        ("62f27d48dcc1 62f27d48ddc1", "AES in libcrypto.so.3"),  # the same of 512 bits
        ("660f3a44c100 66440f3a44c100", "AES in libcrypto.so.3"),  # pclmulqdq: GHASH
        ("660f72f00c 660f72d014 660f72f10c 660f72d114", "ChaCha20 in libcrypto.so.3"),  # pslld 12, psrld 20
        ("62f17d4872c80c 62f17d4872c90c", "ChaCha20 in libcrypto.so.3"),  # vprold 12
        ("660f73d01a 660f73d11a", "Poly1305 in libcrypto.so.3"),  # psrlq 26
        ("660f73d02a 660f73d12a", "libcrypto.so.3 as a whole"),  # psrlq 42: SHA-512, too
        ("660f38dcc1", "libcrypto.so.3 as a whole"),
        ("", "libcrypto.so.3 as a whole"),
    ],
)
def test_a_function_without_a_name_is_known_by_its_instructions(code: str, cipher: str) -> None:
    assert of_code(bytes.fromhex(code), None, "libcrypto.so.3", x86=True) == cipher


def test_the_same_on_arm64() -> None:
    aese, aesmc = (word.to_bytes(4, "little") for word in (0x4E284820, 0x4E286800))
    assert of_code(aese + aesmc, None, "libcrypto.so.3", x86=False) == "AES in libcrypto.so.3"
    assert of_code(aese + b"\0\0", None, "libcrypto.so.3", x86=False) == "libcrypto.so.3 as a whole"


def test_elsewhere_a_few_of_its_instructions_may_be_a_hash() -> None:
    """Of a table (ahash), or CRC32 (PCLMULQDQ)."""
    aesenc, product, rotation = map(
        bytes.fromhex, ("660f38dcc1", "660f3a44c100", "62f17d4872c80c62f17d4872c90c")
    )
    assert of_code(15 * aesenc + 99 * product, None, "server", x86=True) is None
    assert of_code(16 * aesenc, None, "server", x86=True) == "AES in server"
    assert of_code(rotation, None, "server", x86=True) == "ChaCha20 in server"
    # Of Rust and of C++ nobody knows the names of all.
    encrypt8 = "_ZN3aes2ni6aes1288encrypt817h0123456789abcdefE"
    assert of_code(16 * aesenc, encrypt8, "server", x86=True) == encrypt8
    assert of_code(15 * aesenc, "hash", "libcrypto.so.3", x86=True) is None
    assert of_code(rotation, "_ZN11rand_chacha4guts11refill_wideE", "server", x86=True) is None


def test_libraries_of_ciphers() -> None:
    assert all(map(is_library, ("libcrypto.so.3", "libgnutls.so.30", "libfreeblpriv3.so", "libnettle.so.8")))
    assert not any(map(is_library, ("libssl.so.3", "libc.so.6", "libcryptopp", "libz.so.1")))


def sample(cipher: str | None, count: int) -> Record:
    row: Record = {"side": "target", "event": "cpu-clock", "frames": [], "samples": count, "weight": count}
    row |= {"weight_squared": float(count), "copy": None, "cipher": cipher, "unknown": None}
    return row | {"code": "/lib/libcrypto.so.3", "build_id": "ab"}


def test_samples_in_ciphers_are_the_account_and_a_library_as_a_whole_is_not() -> None:
    rows = [sample("AES in libcrypto.so.3", 60), sample("x.so as a whole", 30), sample(None, 10)]
    made = to_record(rows, Taxonomy.load())
    assert {(row["category"], row["symbol"]): row["samples"] for row in made} == {
        ("user_encrypt", "AES in libcrypto.so.3"): 60,
        ("user", "x.so as a whole"): 30,
        ("user", "[user]"): 10,
    }
    (code,) = user_code(rows)
    assert (code["samples"], code["copy_samples"], code["cipher_samples"]) == (100, 0, 60)


def with_ciphers(known: float, whole: float) -> Record:
    """A program a quarter of whose time is its own code: so much of that is a cipher, or may be one."""
    record = watched_record()
    (user,) = (row for row in record["samples"] if row["category"] == "user")

    def part(of: float, **more: str) -> Record:
        sums = {key: round(user[key] * of) for key in ("weight", "weight_squared", "samples")}
        return {**user, **sums, **more}

    cipher = part(known, kind="account", category="user_encrypt", symbol="AES in libcrypto.so.3")
    rest = [part(whole, symbol="libcrypto.so.3 as a whole"), part(1 - known - whole)]
    others = [row for row in record["samples"] if row is not user]
    record["samples"] = [row for row in (*others, cipher, *rest) if row["samples"]]
    row = {"event": user["event"], "build_id": None, "reason": None, "file": "/lib/libcrypto.so.3"}
    counts = {"copy_samples": 0, "cipher_samples": cipher["samples"]}
    record["user_code"] = [{**row, **counts, "samples": user["samples"]}]
    return record


def row_of(record: Record) -> Record:
    (row,) = (row for row in record["ledger"] if row["account"] == "user_encrypt")
    return dict(row)


def test_the_row_of_its_ciphers() -> None:
    made = derive(with_ciphers(0.5, 0.02))
    row = row_of(made)
    assert row["share"] == pytest.approx(0.125, abs=0.01) and row["ci"]["low_ns"] < row["cpu_ns"]
    assert [one["name"] for one in made["identities"] if one["holds"] is False] == []
    assert "its own cipher takes 1" in made["verdict"]["sentence"]


def test_a_library_that_cannot_be_told_apart_gives_bounds() -> None:
    made = derive(with_ciphers(0.5, 0.5))
    row = row_of(made)
    assert row["share"] is None and "libcrypto.so.3 as a whole: stripped" in row["reasons"]["share"]
    ends = [row["ci"][end] / made["sides"]["target"]["cpu_ns"] for end in ("low_ns", "high_ns")]
    assert 0.09 < ends[0] < 0.125 and 0.25 < ends[1] < 0.3
    assert [one["name"] for one in made["identities"] if one["holds"] is False] == []
    gather = next(one for one in made["ledger"] if one["account"] == "gather")
    assert gather["share"] == 0  # that it does not copy is known


def test_a_record_of_before_has_no_such_row() -> None:
    record = with_ciphers(0, 0)
    for row in record["user_code"]:
        del row["cipher_samples"]
    assert [row for row in derive(record)["ledger"] if row["account"] == "user_encrypt"] == []
