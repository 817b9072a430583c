/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TRAFFIC_FLOW_H
#define TRAFFIC_FLOW_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "failure.h"
#include "histogram.h"
#include "message.h"
#include "zerocopy.h"

/* What one thread has sent. Written by that thread only, read by others while it is parked. */
struct send_counts {
	uint64_t messages;
	uint64_t bytes;			/* accepted by the socket */
	uint64_t sendto_calls;		/* all that were made, also those that failed */
	uint64_t sendmsg_calls;
	uint64_t sendmmsg_calls;
	uint64_t sendmmsg_sends;	/* each of them is several */
	uint64_t writev_calls;
	uint64_t sendfile_calls;
	uint64_t splice_calls;		/* into a pipe and out of it */
	uint64_t vmsplice_calls;
	uint64_t spliced_calls;		/* that gave pages to the socket: sendfile(), or splice() out of a pipe */
	uint64_t spliced_bytes;
	uint64_t taken_calls;		/* by a relay from upstream, that returned data */
	uint64_t taken_bytes;
	uint64_t ring_requests;		/* to send, that an io_uring has ended, also those that failed */
	uint64_t ring_enters;		/* io_uring_enter() */
	uint64_t short_sends;
	uint64_t eagain;
	uint64_t gather_timed_messages;
	uint64_t gather_timed_ns;
	uint64_t gather_broken_messages;
};

static inline uint64_t send_counts__calls(const struct send_counts *counts)
{
	return counts->sendto_calls + counts->sendmsg_calls + counts->sendmmsg_sends + counts->writev_calls +
	       counts->spliced_calls + counts->ring_requests;
}

/* Who does the work of a request to an io_uring: the thread that asks, a worker, or one that polls for requests. */
enum issue { ISSUE_INLINE, ISSUE_ASYNC, ISSUE_SQPOLL, ISSUE_CNT };

extern const char *const issue_names[ISSUE_CNT];

/* How fields that are sent one by one are held back until the last: not, by MSG_MORE, by TCP_CORK. */
enum push { PUSH_NONE, PUSH_MORE, PUSH_CORK, PUSH_CNT };

extern const char *const push_names[PUSH_CNT];

/* The system call that takes all fields of a message at once. */
enum vectored { VECTORED_SENDMSG, VECTORED_WRITEV, VECTORED_CNT };

extern const char *const vectored_names[VECTORED_CNT];

/* How pages of a file come into a socket: by the pipe that sendfile(2) makes, or by one of the program's own. */
enum via { VIA_SENDFILE, VIA_SPLICE, VIA_CNT };

extern const char *const via_names[VIA_CNT];

/*
 * When a zero-copy sender reads the kernel's notices that a buffer is its own again: after a quarter of the ring, after each
 * message, or never while it sends, as programs do that forget about them (in a pause it does, so that the books close).
 */
enum notices { NOTICES_BATCH, NOTICES_EACH, NOTICES_NEVER, NOTICES_CNT };

extern const char *const notices_names[NOTICES_CNT];

/* One connection, and all that a strategy may use. */
struct flow {
	int fd;
	bool timed;			/* this message is one of those that are timed */
	bool expects_reply;		/* the receiver answers each message */
	bool rewrites;			/* each message is rewritten before it is sent */
	int upstream;			/* where a relay's messages come from; -1: it is none, or is only tried */
	pid_t feeder;			/* the process at the other end of it; 0: none */
	int file;			/* that the messages lie in, if the strategy wants one */
	bool encrypts;			/* what is sent is encrypted by the kernel */
	enum issue issue;
	enum push push;
	enum vectored call;
	enum via via;
	enum notices wait;
	unsigned int batch;		/* fields in one call, of those that are sent one by one */
	void *arena;			/* that all messages lie in, if the shape says so */
	size_t arena_bytes;
	struct message_shape shape;
	struct send_counts counts;
	struct zerocopy zerocopy;	/* of asynchronous strategies */
	struct histogram *completion_time;
	uint64_t starved_ns;		/* since when ENOBUFS with nothing in flight; 0: not */
	uint64_t starved_reaps;
	struct flow *sibling;		/* the next one that the same thread sends on, round and round; NULL: none */
	struct iovec *rest;		/* room for the remainder of a message: shape.fields */
	void *state;			/* the strategy's own, from open to close */
	struct failure failure;
};

/* Send all of it; short sends are continued. 0 or -errno with the reason in flow->failure. */
int flow__send(struct flow *flow, const void *from, size_t length);
/* The same with flags of send(2). */
int flow__send_with(struct flow *flow, const void *from, size_t length, int flags);
/* All fields in one call: writev() if flow->call says so, else sendmsg(), or send(), the cheaper call, where there is one field. */
int flow__sendmsg(struct flow *flow, struct message *message);
/* The message that begins there in flow->file, by reference to the file's pages. */
int flow__sendfile(struct flow *flow, off_t from);

/* The fields from byte `done` on go to `rest`; their number is returned. */
unsigned int flow__remainder(const struct iovec *fields, unsigned int count, size_t done,
			     struct iovec *rest);

/*
 * A call took `sent` bytes of a message, of which `done` were taken before: whether some are left. `left` is them, then: the
 * argument of the next call.
 */
bool flow__advance(struct flow *flow, const struct iovec *fields, size_t *done, size_t sent, struct msghdr *left);

/* After a failed send call: 0 when it may be repeated, else -errno with the reason. */
int flow__send_failed(struct flow *flow, const char *call);

/* A zero-copy call took `bytes`: `pending` is raised until its completion, if anybody waits for that. */
int flow__sent_zerocopy(struct flow *flow, uint32_t *pending, size_t bytes);

/* A flow of this thread with zero-copy sends in flight: this one before its siblings, which nobody else reaps; NULL: none. */
struct flow *flow__in_flight(struct flow *flow);

/* The `reap` of a strategy (strategy.h) whose wait() returns when at least one completion has come. */
int flow__reap(struct flow *flow, bool drain, int (*wait)(struct flow *flow));

#endif
