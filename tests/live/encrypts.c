// SPDX-License-Identifier: GPL-2.0-only
/*
 * encrypts.c - spends half of its time on encryption in its own memory by OpenSSL's libcrypto, as for TLS records (turns.h).
 *
 * encrypts HOW SECONDS REPORT
 *
 * HOW: EVP_aes_128_gcm, EVP_chacha20_poly1305, or EVP_sha256, which is a digest and not a cipher.
 */
#include "turns.h"

#include <dlfcn.h>

#define RECORD_BYTES (16 << 10)

static unsigned char from[RECORD_BYTES], to[RECORD_BYTES + 64];
static const unsigned char key[32], nonce[12];
static const void *algorithm;
static void *context;
static int length;

/* Functions of libcrypto, loaded at run time, so that this program can be built without OpenSSL's headers. */
static int (*begin)(void *, const void *, void *, const unsigned char *, const unsigned char *);
static int (*update)(void *, unsigned char *, int *, const unsigned char *, int);
static int (*finish)(void *, unsigned char *, int *);
static int (*digest)(const void *, size_t, unsigned char *, unsigned int *, const void *, void *);

static void encrypt_record(void)
{
	if (!begin(context, NULL, NULL, NULL, nonce) || !update(context, to, &length, from, RECORD_BYTES) ||
	    !finish(context, to + length, &length))
		errx(1, "encrypting failed");
}

static void hash_record(void)
{
	if (!digest(from, RECORD_BYTES, to, NULL, algorithm, NULL))
		errx(1, "hashing failed");
}

static void *find(void *library, const char *name)
{
	void *found = dlsym(library, name);

	if (!found)
		errx(CANNOT, "%s", dlerror());
	return found;
}

int main(int argc, char **argv)
{
	void *library = dlopen("libcrypto.so.3", RTLD_NOW);
	int hashes;

	if (argc != 4)
		errx(2, "usage: encrypts EVP_aes_128_gcm|EVP_chacha20_poly1305|EVP_sha256 SECONDS REPORT");
	if (!library)
		errx(CANNOT, "%s", dlerror());
	algorithm = ((const void *(*)(void))find(library, argv[1]))();
	context = ((void *(*)(void))find(library, "EVP_CIPHER_CTX_new"))();
	begin = find(library, "EVP_EncryptInit_ex");
	update = find(library, "EVP_EncryptUpdate");
	finish = find(library, "EVP_EncryptFinal_ex");
	digest = find(library, "EVP_Digest");
	hashes = !strcmp(argv[1], "EVP_sha256");
	if (!hashes && !begin(context, algorithm, NULL, key, nonce))
		errx(1, "EVP_EncryptInit_ex failed");
	return take_turns(hashes ? hash_record : encrypt_record, NULL, argv[2], argv[3]);
}
