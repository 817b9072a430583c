/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TRAFFIC_READING_H
#define TRAFFIC_READING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct options;
struct receiver_thread;

/* How the bytes of an arrival left the socket. */
enum way { WAY_CALL, WAY_DROPPED, WAY_MAPPED, WAY_SPLICED };

/*
 * What one call took off the socket, in the order of the stream: pages that were mapped (WAY_MAPPED only), then bytes that
 * came to `from`, or that nobody sees.
 */
struct arrival {
	enum way way;
	const char *mapped;
	size_t mapped_bytes;
	const char *from;
	size_t bytes;
};

/*
 * One way to take what comes. A file in readings/ defines one of these, named reading_<file name>; the build finds it by its
 * name, and nothing else in the program knows it.
 *
 * `open` makes thread->state, in the thread that will read. `receive` waits until something came and says what: 1, 0 at the end
 * of the stream, or -errno; -EINTR and -EAGAIN: ask again. Both also run once before the run, on a socket that is not
 * connected: a kernel that can says ENOTCONN. `start` replaces them where one thread reads all connections.
 */
struct reading {
	const char *name;
	const char *call;	/* what failed, in messages */
	const char *needs;	/* what to look at when the kernel refuses; NULL: nothing */
	enum way way;		/* WAY_MAPPED: and by calls what cannot be mapped */
	bool into_fields;	/* as many pieces as --fields says */
	bool in_ring;		/* by requests to an io_uring */
	bool by_timer;		/* takes --coalesce */
	unsigned int buffers;	/* of --buffer bytes, for each connection; 0: one */
	bool whole_pages;	/* --buffer is at least one */
	int (*open)(struct receiver_thread *thread);
	int (*receive)(struct receiver_thread *thread, struct arrival *arrival);
	void (*close)(struct receiver_thread *thread);
	int (*start)(struct receiver_thread *connections, unsigned int count);
};

#define READINGS_MAX 16

/* All of them in the order of their names, NULL-terminated. One without `receive` and `start` is not in this build. */
extern const struct reading *const readings[];

extern const struct reading reading_read;	/* the default */

/* The bytes do not come to the program: nothing to check or to touch. */
static inline bool reading__is_blind(const struct reading *reading)
{
	return reading->way == WAY_DROPPED || reading->way == WAY_SPLICED;
}

/* Their names, for messages: how many. */
unsigned int reading__names(const char *names[READINGS_MAX]);

#endif
