// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory.h"
#include "message.h"
#include "pattern.h"

/* Alignment in bytes that malloc() guarantees. Fields in an arena have this alignment, too, so that both are comparable. */
#define HEAP_ALIGN_BYTES 16

const char *const alignment_names[] = { [ALIGN_HEAP] = "heap", [ALIGN_PAGE] = "page" };
const char *const page_kind_names[] = {
	[PAGES_4K] = "4k", [PAGES_THP] = "thp", [PAGES_HUGETLB] = "hugetlb",
};
_Static_assert(sizeof(alignment_names) / sizeof(*alignment_names) == ALIGN_CNT, "a name each");
_Static_assert(sizeof(page_kind_names) / sizeof(*page_kind_names) == PAGES_CNT, "a name each");

static size_t round_up(size_t bytes, size_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

static size_t align_bytes(enum alignment align)
{
	return align == ALIGN_PAGE ? (size_t)sysconf(_SC_PAGESIZE) : HEAP_ALIGN_BYTES;
}

size_t message_shape__field_bytes(const struct message_shape *shape, unsigned int index)
{
	unsigned int headers = shape->header_bytes > 0, equal = shape->fields - headers;
	size_t left = shape->size_bytes - shape->header_bytes, share = left / equal;

	if (index < headers)
		return shape->header_bytes;
	return index + 1 < shape->fields ? share : left - share * (equal - 1);
}

size_t message_shape__bytes(const struct message_shape *shape)
{
	size_t align = align_bytes(shape->align);
	size_t bytes = 0;

	if (shape->in_file)
		return round_up(shape->size_bytes, align) * shape->slots;
	for (unsigned int i = 0; i < shape->fields; i++)
		bytes += round_up(message_shape__field_bytes(shape, i), align);
	bytes *= shape->slots;
	return shape->pages == PAGES_4K ? bytes : round_up(bytes, memory__huge_page_bytes());
}

/*
 * Return a file without a name, or -1 and errno. overlayfs before Linux 6.3 does not support O_TMPFILE. On such a file system,
 * create a file with a name and remove the name.
 */
static int open_unnamed(const char *directory)
{
	int file = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	char path[PATH_MAX];

	if (file >= 0 || errno != EOPNOTSUPP)
		return file;
	if ((size_t)snprintf(path, sizeof(path), "%s/copyscope-XXXXXX", directory) >= sizeof(path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	file = mkostemp(path, O_CLOEXEC);
	if (file >= 0)
		unlink(path);
	return file;
}

/* Create the file of messages. Allocate its blocks, because writing to a mapping on a full file system raises SIGBUS. */
static int open_file(const char *directory, size_t bytes)
{
	int file = directory ? open_unnamed(directory) : memfd_create("messages", MFD_CLOEXEC);
	int err;

	if (file < 0)
		return -errno;
	err = directory ? posix_fallocate(file, 0, bytes) : ftruncate(file, bytes) ? errno : 0;
	if (!err)
		return file;
	close(file);
	return -err;
}

static int check_file(const struct message_shape *shape, uint64_t needed, struct failure *failure)
{
	int file = open_file(shape->directory, needed);

	if (file < 0)
		return failure__set(failure, file, "--file %s: cannot create a file of %llu KiB there: %s; choose "
				    "another directory", shape->directory, (unsigned long long)needed >> 10,
				    strerror(-file));
	close(file);
	return 0;
}

int message_shape__check(const struct message_shape *shape, unsigned int rings,
			 struct failure *failure)
{
	uint64_t needed = (uint64_t)message_shape__bytes(shape) * rings;
	uint64_t available = memory__meminfo_bytes("MemAvailable");
	uint64_t huge = memory__huge_page_bytes();

	if (shape->pages == PAGES_HUGETLB) {
		uint64_t free_pages = memory__huge_pages_free();

		if (free_pages * huge < needed)
			return failure__set(failure, -ENOMEM,
				"--pages hugetlb: needs %llu pages of %llu KiB, %llu are free; reserve them by "
				"`sysctl vm.nr_hugepages=N` as root, or use --pages thp",
				(unsigned long long)(needed / huge), (unsigned long long)huge >> 10,
				(unsigned long long)free_pages);
		return 0;
	}
	if (shape->pages == PAGES_THP && memory__thp_never())
		return failure__set(failure, -EOPNOTSUPP,
			"--pages thp: transparent huge pages are switched off on this machine; write madvise to "
			"/sys/kernel/mm/transparent_hugepage/enabled as root, or use --pages 4k");
	if (available && needed > available)
		return failure__set(failure, -ENOMEM,
			"--working-set %u: messages of %zu bytes in %u threads need %llu MiB, %llu MiB are "
			"available; lower --working-set", shape->slots, shape->size_bytes, rings,
			(unsigned long long)needed >> 20, (unsigned long long)available >> 20);
	return shape->directory ? check_file(shape, needed, failure) : 0;
}

/* Allocate each field separately on the heap, as most programs do. */
static int allocate_fields(struct ring *ring)
{
	const struct message_shape *shape = &ring->shape;

	for (size_t i = 0; i < (size_t)shape->slots * shape->fields; i++) {
		struct iovec *field = &ring->fields[i];

		field->iov_len = message_shape__field_bytes(shape, i % shape->fields);
		if (shape->align == ALIGN_HEAP)
			field->iov_base = malloc(field->iov_len);
		else if (posix_memalign(&field->iov_base, align_bytes(shape->align), field->iov_len))
			field->iov_base = NULL;
		if (!field->iov_base)
			return -ENOMEM;
	}
	return 0;
}

/* Place all fields in one mapping, without gaps: malloc() has no huge pages, and registered memory must be one range. */
static int place_fields(struct ring *ring)
{
	const struct message_shape *shape = &ring->shape;
	char *next_field;

	ring->arena_bytes = message_shape__bytes(shape);
	ring->arena = shape->pages == PAGES_4K ? memory__map(ring->arena_bytes)
					       : memory__map_huge(ring->arena_bytes, shape->pages == PAGES_HUGETLB);
	if (!ring->arena)
		return -ENOMEM;
	next_field = ring->arena;
	for (size_t i = 0; i < (size_t)shape->slots * shape->fields; i++) {
		ring->fields[i].iov_base = next_field;
		ring->fields[i].iov_len = message_shape__field_bytes(shape, i % shape->fields);
		next_field += round_up(ring->fields[i].iov_len, align_bytes(shape->align));
	}
	return 0;
}

/* Place all messages in a file. The fields of a message follow each other without gaps. */
static int place_in_file(struct ring *ring)
{
	const struct message_shape *shape = &ring->shape;
	size_t message_bytes = round_up(shape->size_bytes, align_bytes(shape->align));
	size_t bytes = message_shape__bytes(shape);
	void *arena;

	ring->file = open_file(shape->directory, bytes);
	if (ring->file < 0)
		return ring->file;
	arena = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring->file, 0);
	if (arena == MAP_FAILED)
		return -errno;
	ring->arena = arena;
	ring->arena_bytes = bytes;
	for (unsigned int slot = 0; slot < shape->slots; slot++) {
		struct iovec *field = &ring->fields[(size_t)slot * shape->fields];
		char *next_field = (char *)arena + slot * message_bytes;

		ring->messages[slot].file_offset = slot * message_bytes;
		for (unsigned int i = 0; i < shape->fields; i++) {
			field[i].iov_base = next_field;
			field[i].iov_len = message_shape__field_bytes(shape, i);
			next_field += field[i].iov_len;
		}
	}
	return 0;
}

static int allocate_messages(struct ring *ring)
{
	if (ring->shape.in_file)
		return place_in_file(ring);
	return ring->shape.pages == PAGES_4K && !ring->shape.in_arena ? allocate_fields(ring) : place_fields(ring);
}

int ring__open(struct ring *ring, const struct message_shape *shape, struct failure *failure)
{
	int err = -ENOMEM;

	memset(ring, 0, sizeof(*ring));
	ring->shape = *shape;
	ring->file = -1;
	ring->messages = calloc(shape->slots, sizeof(*ring->messages));
	ring->fields = calloc((size_t)shape->slots * shape->fields, sizeof(*ring->fields));
	if (ring->messages && ring->fields)
		err = allocate_messages(ring);
	if (err) {
		ring__close(ring);
		return failure__set(failure, err, "--working-set %u: cannot allocate messages of %zu bytes: %s; "
				    "lower --working-set or --size", shape->slots,
				    shape->size_bytes, strerror(-err));
	}
	for (unsigned int i = 0; i < shape->slots; i++)
		ring->messages[i].fields = &ring->fields[(size_t)i * shape->fields];
	return 0;
}

void ring__close(struct ring *ring)
{
	if (ring->arena)
		munmap(ring->arena, ring->arena_bytes);
	else if (ring->fields && !ring->shape.in_file)
		for (size_t i = 0; i < (size_t)ring->shape.slots * ring->shape.fields; i++)
			free(ring->fields[i].iov_base);
	if (ring->file >= 0)
		close(ring->file);
	free(ring->fields);
	free(ring->messages);
	memset(ring, 0, sizeof(*ring));
	ring->file = -1;
}

void message__fill(struct message *message, unsigned int fields, char byte)
{
	for (unsigned int i = 0; i < fields; i++)
		memset(message->fields[i].iov_base, byte, message->fields[i].iov_len);
}

void message__write_letters(struct message *message, unsigned int fields)
{
	for (unsigned int i = 0; i < fields; i++)
		memset(message->fields[i].iov_base, 'A' + i % 26, message->fields[i].iov_len);
}

void message__write_pattern(struct message *message, unsigned int fields, uint64_t generation)
{
	size_t offset = 0;

	for (unsigned int i = 0; i < fields; i++) {
		pattern__write(message->fields[i].iov_base, message->fields[i].iov_len, generation,
			       offset);
		offset += message->fields[i].iov_len;
	}
}
