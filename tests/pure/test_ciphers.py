# SPDX-License-Identifier: GPL-2.0-only
"""Ciphers in a watched program, recognised by function name or by instructions."""

from typing import Any

import pytest
from builders.documents import derive
from builders.watched import watched_record
from copyscope.taxonomy.samples import to_record, user_code
from copyscope.taxonomy.taxonomy import Taxonomy
from copyscope.taxonomy.user_code import encrypts, is_library, recognise_cipher

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
def test_cipher_functions_are_recognised_by_name(name: str) -> None:
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
def test_other_functions_are_not_taken_for_ciphers(name: str) -> None:
    assert not encrypts(name)


@pytest.mark.parametrize(
    ("code", "cipher"),
    [
        ("660f38dcc1 660f38ddc1", "AES in libcrypto.so.3"),  # aesenc, aesenclast
        ("c4e279dcc1 c4e279ddc1", "AES in libcrypto.so.3"),  # vaesenc
        ("62f27d48dcc1 62f27d48ddc1", "AES in libcrypto.so.3"),  # vaesenc of 512 bits
        ("660f3a44c100 66440f3a44c100", "AES in libcrypto.so.3"),  # pclmulqdq: GHASH
        ("660f72f00c 660f72d014 660f72f10c 660f72d114", "ChaCha20 in libcrypto.so.3"),  # pslld 12, psrld 20
        ("62f17d4872c80c 62f17d4872c90c", "ChaCha20 in libcrypto.so.3"),  # vprold 12
        ("660f73d01a 660f73d11a", "Poly1305 in libcrypto.so.3"),  # psrlq 26
        ("660f73d02a 660f73d12a", "libcrypto.so.3 as a whole"),  # psrlq 42: SHA-512 uses it, too
        ("660f38dcc1", "libcrypto.so.3 as a whole"),
        ("", "libcrypto.so.3 as a whole"),
    ],
)
def test_nameless_function_is_recognised_by_its_instructions(code: str, cipher: str) -> None:
    assert recognise_cipher(bytes.fromhex(code), None, "libcrypto.so.3", x86=True) == cipher


def test_nameless_function_is_recognised_on_arm64() -> None:
    aese, aesmc = (word.to_bytes(4, "little") for word in (0x4E284820, 0x4E286800))
    assert recognise_cipher(aese + aesmc, None, "libcrypto.so.3", x86=False) == "AES in libcrypto.so.3"
    assert recognise_cipher(aese + b"\0\0", None, "libcrypto.so.3", x86=False) == "libcrypto.so.3 as a whole"


def test_few_cipher_instructions_outside_a_cipher_library_are_no_cipher() -> None:
    """Hash tables use AES instructions (ahash), and CRC32 uses PCLMULQDQ."""
    aesenc, product, rotation = map(
        bytes.fromhex, ("660f38dcc1", "660f3a44c100", "62f17d4872c80c62f17d4872c90c")
    )
    assert recognise_cipher(15 * aesenc + 99 * product, None, "server", x86=True) is None
    assert recognise_cipher(16 * aesenc, None, "server", x86=True) == "AES in server"
    assert recognise_cipher(rotation, None, "server", x86=True) == "ChaCha20 in server"
    # Instructions decide for mangled names of Rust and C++, because no list has all of these.
    encrypt8 = "_ZN3aes2ni6aes1288encrypt817h0123456789abcdefE"
    assert recognise_cipher(16 * aesenc, encrypt8, "server", x86=True) == encrypt8
    assert recognise_cipher(15 * aesenc, "hash", "libcrypto.so.3", x86=True) is None
    assert recognise_cipher(rotation, "_ZN11rand_chacha4guts11refill_wideE", "server", x86=True) is None


def test_cipher_libraries_are_recognised_by_name() -> None:
    assert all(map(is_library, ("libcrypto.so.3", "libgnutls.so.30", "libfreeblpriv3.so", "libnettle.so.8")))
    assert not any(map(is_library, ("libssl.so.3", "libc.so.6", "libcryptopp", "libz.so.1")))


def sample(cipher: str | None, count: int) -> Any:
    row: Record = {"side": "target", "event": "cpu-clock", "frames": [], "samples": count, "weight": count}
    row |= {"weight_squared": float(count), "copy": None, "cipher": cipher, "unknown": None}
    return row | {"code": "/lib/libcrypto.so.3", "build_id": "ab"}


def test_samples_in_ciphers_are_an_account_but_a_stripped_library_is_not() -> None:
    rows = [sample("AES in libcrypto.so.3", 60), sample("x.so as a whole", 30), sample(None, 10)]
    record_rows = to_record(rows, Taxonomy.load())
    assert {(row["category"], row["symbol"]): row["samples"] for row in record_rows} == {
        ("user_encrypt", "AES in libcrypto.so.3"): 60,
        ("user", "x.so as a whole"): 30,
        ("user", "[user]"): 10,
    }
    (code,) = user_code(rows)
    assert (code["samples"], code["copy_samples"], code["cipher_samples"]) == (100, 0, 60)


def with_ciphers(cipher_part: float, unclear_part: float) -> Record:
    """Return a record of a program that spends a quarter of its time in its own code.

    cipher_part: share of that time in a cipher
    unclear_part: share of that time in a stripped cipher library
    """
    record = watched_record()
    (user,) = (row for row in record["samples"] if row["category"] == "user")

    def part(share: float, **more: str) -> Record:
        sums = {key: round(user[key] * share) for key in ("weight", "weight_squared", "samples")}
        return {**user, **sums, **more}

    cipher = part(cipher_part, kind="account", category="user_encrypt", symbol="AES in libcrypto.so.3")
    rest = [part(unclear_part, symbol="libcrypto.so.3 as a whole"), part(1 - cipher_part - unclear_part)]
    others = [row for row in record["samples"] if row is not user]
    record["samples"] = [row for row in (*others, cipher, *rest) if row["samples"]]
    row = {"event": user["event"], "build_id": None, "reason": None, "file": "/lib/libcrypto.so.3"}
    counts = {"copy_samples": 0, "cipher_samples": cipher["samples"]}
    record["user_code"] = [{**row, **counts, "samples": user["samples"]}]
    return record


def row_of(record: Record) -> Record:
    (row,) = (row for row in record["ledger"] if row["account"] == "user_encrypt")
    return dict(row)


def test_ciphers_of_a_watched_program_have_a_row() -> None:
    record = derive(with_ciphers(0.5, 0.02))
    row = row_of(record)
    assert row["share"] == pytest.approx(0.125, abs=0.01) and row["ci"]["low_ns"] < row["cpu_ns"]
    assert [check["name"] for check in record["identities"] if check["holds"] is False] == []
    assert "its own cipher takes 1" in record["verdict"]["sentence"]


def test_stripped_library_gives_bounds_instead_of_a_share() -> None:
    record = derive(with_ciphers(0.5, 0.5))
    row = row_of(record)
    assert row["share"] is None and "libcrypto.so.3 as a whole: stripped" in row["reasons"]["share"]
    ends = [row["ci"][end] / record["sides"]["target"]["cpu_ns"] for end in ("low_ns", "high_ns")]
    assert 0.09 < ends[0] < 0.125 and 0.25 < ends[1] < 0.3
    assert [check["name"] for check in record["identities"] if check["holds"] is False] == []
    gather = next(row for row in record["ledger"] if row["account"] == "gather")
    assert gather["share"] == 0  # the library is known not to copy


def test_older_record_has_no_cipher_row() -> None:
    record = with_ciphers(0, 0)
    for row in record["user_code"]:
        del row["cipher_samples"]
    assert [row for row in derive(record)["ledger"] if row["account"] == "user_encrypt"] == []
