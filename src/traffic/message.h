/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TRAFFIC_MESSAGE_H
#define TRAFFIC_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "failure.h"

#define MESSAGE_FIELDS_MAX 1024		/* UIO_MAXIOV: more do not fit one sendmsg() */
#define MESSAGE_BYTES_MAX (1ull << 30)
#define WORKING_SET_MAX 65536

enum alignment { ALIGN_HEAP, ALIGN_PAGE, ALIGN_CNT };
enum page_kind { PAGES_4K, PAGES_THP, PAGES_HUGETLB, PAGES_CNT };

extern const char *const alignment_names[ALIGN_CNT];
extern const char *const page_kind_names[PAGES_CNT];

struct message {
	struct iovec *fields;
	off_t file_offset;	/* of a ring in a file: where the message begins in it */
	/*
	 * Send calls that still refer to this memory. The core neither rewrites nor sends a message
	 * before this is 0 again; only asynchronous strategies ever raise it.
	 */
	uint32_t pending;
};

struct message_shape {
	size_t size_bytes;
	unsigned int fields;
	size_t header_bytes;	/* of the first field; the others share the rest. 0: all share alike */
	unsigned int slots;	/* messages in the ring: the working set */
	enum alignment align;
	enum page_kind pages;
	bool in_arena;		/* one after the other in one piece of memory, whatever the pages */
	bool in_file;		/* in a file, each message in one piece: fields without gaps */
	const char *directory;	/* of that file; NULL: it is in memory */
};

/* The messages one thread sends in turn. Every field is an allocation (or a place) of its own. */
struct ring {
	struct message_shape shape;
	struct message *messages;
	struct iovec *fields;	/* of all messages, one after the other */
	void *arena;		/* one piece of memory or a file: the fields lie in here; otherwise each is on the heap */
	size_t arena_bytes;
	int file;		/* that the arena maps; -1: none */
	unsigned int next;
};

/* Memory of one ring in bytes, a huge page at the end filled up. */
size_t message_shape__bytes(const struct message_shape *shape);
/* The share of field `index`: but for a header divided evenly, the remainder goes to the last. */
size_t message_shape__field_bytes(const struct message_shape *shape, unsigned int index);
/* Can this machine give that memory `rings` times? 0 or -errno with the next step. */
int message_shape__check(const struct message_shape *shape, unsigned int rings,
			 struct failure *failure);

int ring__open(struct ring *ring, const struct message_shape *shape, struct failure *failure);
void ring__close(struct ring *ring);

/* Field i holds 'A' + i % 26. */
void message__write_letters(struct message *message, unsigned int fields);
/* The verifiable pattern, running through all fields. */
void message__write_pattern(struct message *message, unsigned int fields, uint64_t generation);

static inline struct message *ring__next(struct ring *ring)
{
	struct message *message = &ring->messages[ring->next];

	if (++ring->next == ring->shape.slots)
		ring->next = 0;
	return message;
}

#endif
