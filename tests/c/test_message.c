// SPDX-License-Identifier: GPL-2.0-only
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "memory.h"
#include "message.h"
#include "pattern.h"

static void reassemble(const struct message *message, unsigned int fields, unsigned char *to)
{
	for (unsigned int i = 0; i < fields; i++) {
		memcpy(to, message->fields[i].iov_base, message->fields[i].iov_len);
		to += message->fields[i].iov_len;
	}
}

TEST("message: the last field takes the remainder")
{
	uint64_t state = 5;

	for (int round = 0; round < 2000; round++) {
		struct message_shape shape = { .fields = 1 + next_random(&state) % 1024, .slots = 1 };
		size_t sum = 0;

		shape.size_bytes = shape.fields + next_random(&state) % 100000;
		for (unsigned int i = 0; i < shape.fields; i++) {
			size_t bytes = message_shape__field_bytes(&shape, i);

			CHECK(bytes >= shape.size_bytes / shape.fields);
			CHECK(i + 1 == shape.fields || bytes == shape.size_bytes / shape.fields);
			sum += bytes;
		}
		CHECK_EQUAL(sum, shape.size_bytes);
	}
}

/* Write and check letters, then the pattern across the borders of fields, in every slot of a ring. */
static void check_shape(const struct message_shape *shape, unsigned char *stream)
{
	struct failure failure = { "" };
	struct ring ring;
	size_t first;

	CHECK_EQUAL(ring__open(&ring, shape, &failure), 0);
	for (unsigned int slot = 0; slot < shape->slots; slot++) {
		message__write_letters(&ring.messages[slot], shape->fields);
		for (unsigned int i = 0; i < shape->fields; i++) {
			const struct iovec *field = &ring.messages[slot].fields[i];
			const unsigned char *bytes = field->iov_base;

			CHECK(bytes[0] == 'A' + i % 26 && bytes[field->iov_len - 1] == 'A' + i % 26);
			CHECK(shape->align == ALIGN_HEAP || (uintptr_t)bytes % 4096 == 0);
		}
	}
	for (unsigned int slot = 0; slot < shape->slots; slot++)
		message__write_pattern(&ring.messages[slot], shape->fields, slot + 100);
	for (unsigned int slot = 0; slot < shape->slots; slot++) {
		struct message *message = ring__next(&ring);

		CHECK(message == &ring.messages[slot]);
		CHECK_EQUAL(message->pending, 0);
		reassemble(message, shape->fields, stream);
		CHECK_EQUAL(pattern__count_wrong(stream, shape->size_bytes, slot + 100, 0, &first), 0);
	}
	CHECK(ring__next(&ring) == &ring.messages[0]);
	ring__close(&ring);
}

TEST("message: every kind of memory holds messages")
{
	static unsigned char stream[100003];
	static const struct { size_t size_bytes; unsigned int fields, slots; } sizes[] = {
		{ 1, 1, 1 }, { 8, 8, 3 }, { 1001, 7, 4 }, { 1024, 1024, 2 }, { 100003, 8, 5 },
	};

	for (unsigned int pages = 0; pages < PAGES_CNT; pages++) {
		/* Do not reserve huge pages, because that would change the machine. */
		if (pages == PAGES_HUGETLB && memory__huge_pages_free() < 1)
			continue;
		for (unsigned int align = 0; align < ALIGN_CNT; align++)
			for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
				const struct message_shape shape = {
					.size_bytes = sizes[i].size_bytes, .fields = sizes[i].fields,
					.slots = sizes[i].slots, .align = align, .pages = pages,
				};

				check_shape(&shape, stream);
				if (check_failed)
					return;
			}
	}
}

/* In a file the fields of a message have no gaps, and the file contains what was written to memory. */
TEST("message: in a file it is in one piece")
{
	static unsigned char stream[10007];

	for (unsigned int align = 0; align < ALIGN_CNT; align++) {
		const struct message_shape shape = {
			.size_bytes = sizeof(stream), .fields = 7, .slots = 5, .align = align, .in_file = true,
		};
		struct failure failure = { "" };
		struct ring ring;
		size_t first;

		CHECK_EQUAL(ring__open(&ring, &shape, &failure), 0);
		for (unsigned int slot = 0; slot < shape.slots; slot++) {
			const struct message *message = &ring.messages[slot];

			message__write_pattern(&ring.messages[slot], shape.fields, slot);
			CHECK(align == ALIGN_HEAP || message->file_offset % 4096 == 0);
			CHECK_EQUAL(pread(ring.file, stream, sizeof(stream), message->file_offset), sizeof(stream));
			CHECK_EQUAL(pattern__count_wrong(stream, sizeof(stream), slot, 0, &first), 0);
		}
		ring__close(&ring);
	}
}

TEST("message: hugetlb without pages says how to reserve")
{
	const struct message_shape shape = {
		.size_bytes = 1 << 30, .fields = 8, .slots = 1024, .pages = PAGES_HUGETLB,
	};
	struct failure failure = { "" };

	CHECK(message_shape__check(&shape, 1, &failure) < 0);
	CHECK(strstr(failure.text, "vm.nr_hugepages"));
}

TEST("message: memory that is not there is refused")
{
	const struct message_shape shape = { .size_bytes = 1 << 30, .fields = 8, .slots = 65536 };
	struct failure failure = { "" };

	CHECK(message_shape__check(&shape, 1024, &failure) < 0);
	CHECK(strstr(failure.text, "--working-set"));
}

TEST("memlock: a send accounts two pages more")
{
	CHECK_EQUAL(memlock__send_bytes(1 << 20), (256 + 2) * 4096);
	CHECK_EQUAL(memlock__send_bytes(1), 2 * 4096);
}
