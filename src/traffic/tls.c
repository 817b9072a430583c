// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <linux/tls.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "tls.h"

#ifndef TCP_ULP
#define TCP_ULP 31
#endif
#ifndef SOL_TLS
#define SOL_TLS 282
#endif

#define HEADER_BYTES 5
#define TAG_BYTES 16

const char *const tls_names[] = { [TLS_OFF] = "off", [TLS_12] = "1.2", [TLS_13] = "1.3" };
_Static_assert(sizeof(tls_names) / sizeof(*tls_names) == TLS_CNT, "a name each");

/* Bytes of a record besides the plaintext. TLS 1.2 adds a nonce (RFC 5288, 3), TLS 1.3 the content type (RFC 8446, 5.2). */
static const unsigned int record_overhead_bytes[] = {
	[TLS_12] = HEADER_BYTES + 8 + TAG_BYTES, [TLS_13] = HEADER_BYTES + 1 + TAG_BYTES,
};

int tls__check(int fd, struct failure *failure)
{
	/* ENOTCONN means that the kernel supports kTLS, because only the connection is missing. */
	if (!setsockopt(fd, IPPROTO_TCP, TCP_ULP, "tls", sizeof("tls")) || errno == ENOTCONN)
		return 0;
	if (errno == ENOENT)
		return failure__set(failure, -ENOENT, "--tls: this kernel has no kTLS, or its module is not loaded; "
				    "run sudo modprobe tls, or leave --tls out");
	return failure__set(failure, -errno, "--tls: the kernel refuses kTLS: %s; leave --tls out", strerror(errno));
}

int tls__start(int fd, enum tls version, bool sends, struct failure *failure)
{
	/* The keys need not be secret. Each array has room for a NUL, because gcc 15 rejects strings without a NUL. */
	const struct tls12_crypto_info_aes_gcm_128 keys = {
		.info = { .version = version == TLS_12 ? TLS_1_2_VERSION : TLS_1_3_VERSION,
			  .cipher_type = TLS_CIPHER_AES_GCM_128 },
		.iv = "copysco", .key = "copyscope's key", .salt = "tls",
	};

	if (setsockopt(fd, IPPROTO_TCP, TCP_ULP, "tls", sizeof("tls")))
		return failure__set(failure, -errno, "--tls: the kernel refuses kTLS on the connection: %s", strerror(errno));
	if (!setsockopt(fd, SOL_TLS, sends ? TLS_TX : TLS_RX, &keys, sizeof(keys)))
		return 0;
	/* The cipher is in a separate module. The kernel loads that module automatically only if the kernel can run modprobe. */
	return failure__set(failure, -errno, "--tls %s: the kernel refuses AES-GCM-128: %s; %s", tls_names[version],
			    strerror(errno), errno == ENOENT ? "run sudo modprobe -a gcm aesni-intel"
							     : "try the other version, --tls 1.2 or 1.3");
}

static uint64_t count_records(size_t bytes)
{
	return (bytes + TLS_RECORD_BYTES - 1) / TLS_RECORD_BYTES;
}

uint64_t tls__records(const struct message_shape *shape, bool by_field)
{
	uint64_t records = 0;

	if (!by_field)
		return count_records(shape->size_bytes);
	for (unsigned int i = 0; i < shape->fields; i++)
		records += count_records(message_shape__field_bytes(shape, i));
	return records;
}

struct tls_begun tls__begun(bool sends)
{
	struct tls_begun begun = { -1, -1 };
	FILE *file = fopen("/proc/self/net/tls_stat", "re");
	char name[64];
	long value;

	while (file && fscanf(file, "%63s %ld", name, &value) == 2) {
		if (!strcmp(name, sends ? "TlsTxSw" : "TlsRxSw"))
			begun.software = value;
		else if (!strcmp(name, sends ? "TlsTxDevice" : "TlsRxDevice"))
			begun.device = value;
	}
	if (file)
		fclose(file);
	return begun;
}

static json_t *difference_json(long after, long before)
{
	return after < 0 || before < 0 ? json_null() : json_integer(after - before);
}

json_t *tls__json(enum tls version, bool sends, const struct tls_begun *before)
{
	struct tls_begun now = tls__begun(sends);

	if (version == TLS_OFF)
		return json_null();
	return json_pack("{s:s, s:s, s:i, s:o, s:o}", "version", tls_names[version], "cipher", "AES-GCM-128",
			 "record_overhead_bytes", record_overhead_bytes[version],
			 "software_connections", difference_json(now.software, before->software),
			 "device_connections", difference_json(now.device, before->device));
}
