// SPDX-License-Identifier: GPL-2.0-only
#include "check.h"
#include "tls.h"

/* A record has at most 16 KiB of plaintext. The last record of a send may be shorter. */
TEST("tls: a message is as many records as its pieces fill")
{
	const struct {
		size_t size_bytes;
		unsigned int fields;
		unsigned int whole, by_field;
	} known[] = {
		{ 1, 1, 1, 1 }, { 16384, 1, 1, 1 }, { 16385, 1, 2, 2 }, { 65536, 8, 4, 8 }, { 65536, 3, 4, 6 },
		{ 1 << 20, 2, 64, 64 }, { 49155, 3, 4, 6 },
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		struct message_shape shape = { .size_bytes = known[i].size_bytes, .fields = known[i].fields, .slots = 1 };

		CHECK_EQUAL(tls__records(&shape, false), known[i].whole);
		CHECK_EQUAL(tls__records(&shape, true), known[i].by_field);
	}
}
