/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TRAFFIC_MESSAGE_H
#define TRAFFIC_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "failure.h"

#define MESSAGE_FIELDS_MAX 1024		/* UIO_MAXIOV: maximum number of fields in one sendmsg() call */
#define MESSAGE_BYTES_MAX (1ull << 30)
#define WORKING_SET_MAX 65536

enum alignment { ALIGN_HEAP, ALIGN_PAGE, ALIGN_CNT };
enum page_kind { PAGES_4K, PAGES_THP, PAGES_HUGETLB, PAGES_CNT };

extern const char *const alignment_names[ALIGN_CNT];
extern const char *const page_kind_names[PAGES_CNT];

struct message {
	struct iovec *fields;
	off_t file_offset;	/* offset of the message in ring.file, if the ring has a file */
	/*
	 * Number of send calls that still refer to this memory. Only asynchronous strategies raise it. A message is neither
	 * rewritten nor sent until this is 0 again; --rewrite (options.h) is the exception.
	 */
	uint32_t pending;
};

struct message_shape {
	size_t size_bytes;
	unsigned int fields;
	size_t header_bytes;	/* size of the first field, if that field has a size of its own; 0: all fields have one size */
	unsigned int slots;	/* messages in the ring: the working set */
	enum alignment align;
	enum page_kind pages;
	bool in_arena;		/* all messages are in one mapping, also with PAGES_4K */
	bool in_file;		/* all messages are in a file, without gaps between the fields of a message */
	const char *directory;	/* directory of the message file; NULL: use a memfd */
};

/* The messages that one thread sends in turn. */
struct ring {
	struct message_shape shape;
	struct message *messages;
	struct iovec *fields;	/* fields of all messages, in the order of the messages */
	void *arena;		/* mapping that holds all fields; NULL: each field is a heap allocation */
	size_t arena_bytes;
	int file;		/* file that the arena maps; -1: none */
	unsigned int next;	/* index of the message that is sent next */
};

/* Return the memory of one ring in bytes, rounded up to whole huge pages if the ring uses huge pages. */
size_t message_shape__bytes(const struct message_shape *shape);
/*
 * Return the size of field `index`. All fields have the same size, except the header if there is one, and the last field,
 * which also gets the remainder of the division.
 */
size_t message_shape__field_bytes(const struct message_shape *shape, unsigned int index);
/* Return 0 if this machine has enough memory for `rings` rings, else -errno with the next step in `failure`. */
int message_shape__check(const struct message_shape *shape, unsigned int rings,
			 struct failure *failure);

int ring__open(struct ring *ring, const struct message_shape *shape, struct failure *failure);
void ring__close(struct ring *ring);

/* Fill every field with `byte`. */
void message__fill(struct message *message, unsigned int fields, char byte);
/* Fill each field with one capital letter: 'A' + i % 26 for field i. */
void message__write_letters(struct message *message, unsigned int fields);
/* Write the pattern of --verify (pattern.h), which continues from field to field. */
void message__write_pattern(struct message *message, unsigned int fields, uint64_t generation);

static inline struct message *ring__next(struct ring *ring)
{
	struct message *message = &ring->messages[ring->next];

	if (++ring->next == ring->shape.slots)
		ring->next = 0;
	return message;
}

#endif
