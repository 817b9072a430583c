/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TRAFFIC_FLOW_H
#define TRAFFIC_FLOW_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "failure.h"
#include "histogram.h"
#include "message.h"
#include "zerocopy.h"

/*
 * Counters of the sends on one connection. Only the sending thread writes them; other threads read while that thread is parked.
 * Counters of system calls include failed calls.
 */
struct send_counts {
	uint64_t messages;
	uint64_t bytes;			/* bytes that the socket accepted */
	uint64_t sendto_calls;
	uint64_t sendmsg_calls;
	uint64_t sendmmsg_calls;
	uint64_t sendmmsg_sends;	/* sends inside sendmmsg() calls, one for each field */
	uint64_t writev_calls;
	uint64_t sendfile_calls;
	uint64_t splice_calls;		/* splice() into a pipe and out of a pipe */
	uint64_t vmsplice_calls;
	uint64_t spliced_calls;		/* calls that gave pages to the socket: sendfile(), or splice() out of a pipe */
	uint64_t spliced_bytes;
	uint64_t taken_calls;		/* calls of a relay that returned data from its upstream connection */
	uint64_t taken_bytes;
	uint64_t ring_requests;		/* send requests that io_uring has completed, including failed ones */
	uint64_t ring_enters;		/* calls of io_uring_enter() */
	uint64_t short_sends;		/* sends that accepted only a part of their bytes */
	uint64_t eagain;
	uint64_t gather_timed_messages;	/* messages whose copy into one buffer was timed */
	uint64_t gather_timed_ns;
	uint64_t gather_broken_messages;	/* such copies whose time was dropped: the thread left its CPU */
};

static inline uint64_t send_counts__calls(const struct send_counts *counts)
{
	return counts->sendto_calls + counts->sendmsg_calls + counts->sendmmsg_sends + counts->writev_calls +
	       counts->spliced_calls + counts->ring_requests;
}

/* The thread that executes an io_uring request: the submitting thread, an io_uring worker, or the kernel's polling thread. */
enum issue { ISSUE_INLINE, ISSUE_ASYNC, ISSUE_SQPOLL, ISSUE_CNT };

extern const char *const issue_names[ISSUE_CNT];

/* Way to make the kernel wait for the last field when fields are sent separately: none, MSG_MORE, or TCP_CORK. */
enum push { PUSH_NONE, PUSH_MORE, PUSH_CORK, PUSH_CNT };

extern const char *const push_names[PUSH_CNT];

/* The system call that sends all fields of a message at once. */
enum vectored { VECTORED_SENDMSG, VECTORED_WRITEV, VECTORED_CNT };

extern const char *const vectored_names[VECTORED_CNT];

/* How pages of a file get into a socket: through the internal pipe of sendfile(2), or by splice(2) through our own pipe. */
enum via { VIA_SENDFILE, VIA_SPLICE, VIA_CNT };

extern const char *const via_names[VIA_CNT];

/*
 * Time at which a zero-copy sender reads the kernel's notifications that a buffer may be reused: after each quarter of the
 * ring, after each message, or never while it sends. NOTICES_NEVER imitates programs that do not read notifications. Even
 * these notifications are read in each pause, so that every send is accounted for.
 */
enum notices { NOTICES_BATCH, NOTICES_EACH, NOTICES_NEVER, NOTICES_CNT };

extern const char *const notices_names[NOTICES_CNT];

/* A connection of the sender: everything that a strategy may use. */
struct flow {
	int fd;
	bool timed;			/* the current message is timed */
	bool expects_reply;		/* the receiver answers each message */
	bool rewrites;			/* each message is rewritten before it is sent */
	int upstream;			/* socket from which a relay receives; -1: not a relay, or only a trial before the run */
	pid_t feeder;			/* process that sends to the upstream socket; 0: none */
	int file;			/* file that holds the messages, if the strategy sends from a file */
	bool encrypts;			/* the kernel encrypts the connection (kTLS) */
	enum issue issue;
	enum push push;
	enum vectored call;
	enum via via;
	enum notices wait;
	unsigned int batch;		/* fields in one sendmmsg() call (--batch) */
	void *arena;			/* mapping that holds all messages, if shape.in_arena or shape.in_file is set */
	size_t arena_bytes;
	struct message_shape shape;
	struct send_counts counts;
	struct zerocopy zerocopy;	/* zero-copy sends in flight (asynchronous strategies only) */
	struct histogram *completion_time;
	uint64_t starved_ns;		/* time of the first ENOBUFS with nothing in flight; 0: none */
	uint64_t starved_reaps;		/* value of budget.reaps at the time starved_ns */
	struct flow *sibling;		/* next connection of the same thread, in a circular list; NULL: none */
	struct iovec *rest;		/* array of shape.fields entries for the unsent fields of a message */
	void *state;			/* private data of the strategy, from its open() to its close() */
	struct failure failure;
};

/* Functions below that return int return 0, or -errno with the reason in flow->failure. */

/* Send all `length` bytes; continue after short sends. */
int flow__send(struct flow *flow, const void *from, size_t length);
/* Like flow__send(), with flags of send(2). */
int flow__send_with(struct flow *flow, const void *from, size_t length, int flags);
/*
 * Send all fields with one call: writev() for --call writev, else sendmsg(). A single field uses send(), which costs
 * less.
 */
int flow__sendmsg(struct flow *flow, struct message *message);
/* Send the message at offset `from` of flow->file with sendfile(), which passes references to the file's pages. */
int flow__sendfile(struct flow *flow, off_t from);

/* Store the part of the fields that begins at byte `done` in `rest`, and return the number of stored fields. */
unsigned int flow__remainder(const struct iovec *fields, unsigned int count, size_t done,
			     struct iovec *rest);

/*
 * Account for a call that accepted `sent` bytes of a message, after `*done` bytes of earlier calls. Return true if bytes
 * are left; then `left` describes these bytes for the next call.
 */
bool flow__advance(struct flow *flow, const struct iovec *fields, size_t *done, size_t sent, struct msghdr *left);

/* Handle errno after a failed send call. Return 0 if the call may be repeated; EAGAIN first waits until the socket is writable. */
int flow__send_failed(struct flow *flow, const char *call);

/*
 * Account for a zero-copy call that accepted `bytes`. Raise `*pending` until the call completes, except with --wait never,
 * because then nothing waits for the completion.
 */
int flow__sent_zerocopy(struct flow *flow, uint32_t *pending, size_t bytes);

/*
 * Return a connection of this thread with zero-copy sends in flight, or NULL. The given connection is preferred. No other
 * thread reads the notifications of this thread's connections.
 */
struct flow *flow__in_flight(struct flow *flow);

/* Implement `reap` of a strategy (strategy.h) by a wait() that returns after at least one completion. */
int flow__reap(struct flow *flow, bool drain, int (*wait)(struct flow *flow));

#endif
