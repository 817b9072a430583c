/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TRAFFIC_READING_H
#define TRAFFIC_READING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct options;
struct receiver_thread;

/* Method by which bytes left the socket: copied by a receive call, dropped, mapped, or spliced into a pipe. */
enum way { WAY_CALL, WAY_DROPPED, WAY_MAPPED, WAY_SPLICED };

/*
 * Bytes that one call took from the socket, in the order of the stream: first mapped pages (WAY_MAPPED only), then `bytes`
 * bytes at `from`. `from` is NULL if the program never gets the bytes (WAY_DROPPED, WAY_SPLICED).
 */
struct arrival {
	enum way way;
	const char *mapped;
	size_t mapped_bytes;
	const char *from;
	size_t bytes;
};

/*
 * A way to receive. Each file in readings/ defines a reading, named reading_<file name>. The build finds the reading by this
 * name, and nothing else in the program refers to it.
 *
 * `open` creates thread->state, in the thread that will read. `receive` waits for data and describes the data in `arrival`: it
 * returns 1, 0 at the end of the stream, or -errno; after -EINTR and -EAGAIN it is called again. `open` and `receive` are also
 * called once before the run, on an unconnected socket: a kernel that supports the reading answers ENOTCONN. `start` replaces
 * `open` and `receive` if one thread reads all connections.
 */
struct reading {
	const char *name;
	const char *call;	/* name of the system call in messages */
	const char *needs;	/* requirements that a message names if the kernel refuses; NULL: none */
	enum way way;		/* WAY_MAPPED: bytes that cannot be mapped are copied by receive calls */
	bool into_fields;	/* reads into --fields pieces of the buffer */
	bool in_ring;		/* uses io_uring requests */
	bool by_timer;		/* accepts --coalesce */
	unsigned int buffers;	/* number of buffers of --buffer bytes for each connection; 0: one buffer */
	bool whole_pages;	/* --buffer must be at least one page */
	int (*open)(struct receiver_thread *thread);
	int (*receive)(struct receiver_thread *thread, struct arrival *arrival);
	void (*close)(struct receiver_thread *thread);
	int (*start)(struct receiver_thread *connections, unsigned int count);
};

#define READINGS_MAX 16

/* All readings, sorted by name, NULL-terminated. A reading without `receive` and `start` is not in this build. */
extern const struct reading *const readings[];

extern const struct reading reading_read;	/* the default reading */

/* Return true if the program does not get the received bytes, so that it cannot check or touch them. */
static inline bool reading__is_blind(const struct reading *reading)
{
	return reading->way == WAY_DROPPED || reading->way == WAY_SPLICED;
}

/* Fill `names` with the names of all readings, and return their number. */
unsigned int reading__names(const char *names[READINGS_MAX]);

#endif
