// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"
#include "marker.h"
#include "receiver_thread.h"

#define BUFFER_ALIGN_BYTES 4096
#define CACHE_LINE_BYTES 64

int destination__open(struct destination *to, const struct options *options, struct failure *failure)
{
	/* Divide the buffer into pieces in the same way as a message of that size is divided into fields. */
	const struct message_shape shape = {
		.size_bytes = options->buffer_bytes, .fields = options->shape.fields,
	};
	size_t bytes = options->buffer_bytes * (options->reading->buffers ?: 1);
	char *next_piece;

	to->count = shape.fields;
	to->pieces = calloc(to->count, sizeof(*to->pieces));
	if (posix_memalign((void **)&to->buffer, BUFFER_ALIGN_BYTES, bytes))
		to->buffer = NULL;
	if (!to->pieces || !to->buffer)
		return failure__set(failure, -ENOMEM, "--buffer: cannot allocate %llu bytes: %s; lower --buffer",
				    (unsigned long long)bytes, strerror(ENOMEM));
	/* Cause the page faults of the buffer now, so that they do not slow the first read. */
	memset(to->buffer, 0, bytes);
	next_piece = to->buffer;
	for (unsigned int i = 0; i < to->count; i++) {
		to->pieces[i].iov_base = next_piece;
		to->pieces[i].iov_len = message_shape__field_bytes(&shape, i);
		next_piece += to->pieces[i].iov_len;
	}
	return 0;
}

void destination__close(struct destination *to)
{
	free(to->buffer);
	free(to->pieces);
}

/* With --mode rr, answer each whole message. The sender waits for the answer, so at most one message is in flight. */
static int answer(struct receiver_thread *thread, uint64_t total)
{
	uint64_t replies = count__get(&thread->counts.replies);

	if (total / thread->options->shape.size_bytes == replies)
		return 0;
	count__set(&thread->counts.replies, replies + 1);
	if (send(thread->fd, "", 1, MSG_NOSIGNAL) == 1)
		return 0;
	return failure__set(&thread->failure, -errno, "send of a reply: %s", strerror(errno));
}

/* With --answer, send one byte when the received bytes reach a given total: the sender waits until everything is read. */
static int answer_at(struct receiver_thread *thread, uint64_t total)
{
	const uint64_t *at = thread->options->answer_bytes;

	if ((total != at[0] && total != at[1]) || send(thread->fd, "", 1, MSG_NOSIGNAL) == 1)
		return 0;
	return failure__set(&thread->failure, -errno, "send of an answer: %s", strerror(errno));
}

static uint64_t count_byte(char byte, const char *from, size_t bytes)
{
	uint64_t count = 0;

	for (size_t i = 0; i < bytes; i++)
		count += from[i] == byte;
	return count;
}

static void count_rewritten(struct receive_counts *counts, const char *from, size_t bytes)
{
	count__add(&counts->old_bytes, count_byte(REWRITE_OLD, from, bytes));
	count__add(&counts->new_bytes, count_byte(REWRITE_NEW, from, bytes));
}

/* Read a byte of every cache line, so that the program pays for fetching the received data into its caches. */
static void touch(const char *from, size_t bytes)
{
	const char *end = from + bytes;

	while (from < end) {
		(void)*(const volatile char *)from;
		from = (const char *)(((uintptr_t)from | (CACHE_LINE_BYTES - 1)) + 1);
	}
}

static void count_way(struct receive_counts *counts, const struct arrival *arrival)
{
	if (arrival->way == WAY_DROPPED)
		count__add(&counts->truncated_bytes, arrival->bytes);
	if (arrival->way == WAY_SPLICED)
		count__add(&counts->spliced_bytes, arrival->bytes);
	if (arrival->way == WAY_MAPPED) {
		count__add(&counts->mapped_calls, 1);
		count__add(&counts->mapped_bytes, arrival->mapped_bytes);
		count__add(&counts->beside_bytes, arrival->bytes);
	}
}

int receiver_thread__account(struct receiver_thread *thread, const struct arrival *arrival)
{
	const struct options *options = thread->options;
	struct receive_counts *counts = &thread->counts;
	uint64_t total = count__get(&counts->bytes) + arrival->mapped_bytes + arrival->bytes;

	count__add(&counts->calls, 1);
	count_way(counts, arrival);
	if (options->touch_received) {
		touch(arrival->mapped, arrival->mapped_bytes);
		touch(arrival->from, arrival->bytes);
	}
	if (options->rewrite) {
		count_rewritten(counts, arrival->mapped, arrival->mapped_bytes);
		count_rewritten(counts, arrival->from, arrival->bytes);
	}
	if (options->verify) {
		stream_check__feed(&thread->check, arrival->mapped, arrival->mapped_bytes);
		stream_check__feed(&thread->check, arrival->from, arrival->bytes);
		count__set(&counts->checked_bytes, thread->check.checked_bytes);
		count__set(&counts->wrong_bytes, thread->check.wrong_bytes);
		count__set(&counts->first_wrong_offset, thread->check.first_wrong_offset);
	}
	if (!thread->first_ns)
		thread->first_ns = clock__now_ns();
	atomic_store_explicit(&counts->bytes, total, memory_order_release);
	return options->mode == MODE_RR ? answer(thread, total) : answer_at(thread, total);
}

static int read_stream(struct receiver_thread *thread)
{
	const struct reading *reading = thread->options->reading;
	int err = reading->open ? reading->open(thread) : 0;

	if (err)
		return failure__set(&thread->failure, err, "%s: connection %u: %s%s%s", reading->call, thread->index,
				    strerror(-err), reading->needs ? "; it needs " : "", reading->needs ?: "");
	if (!err && thread->gate)
		gate__park(thread->gate, false);
	while (!err && !receiver_thread__is_stopping(thread)) {
		struct arrival arrival = { 0 };
		int took;

		marker__execute(MARKER_RECEIVER);
		took = reading->receive(thread, &arrival);
		if (!took)
			break;
		if (took > 0)
			err = receiver_thread__account(thread, &arrival);
		else if (took != -EINTR && took != -EAGAIN && !receiver_thread__is_stopping(thread))
			err = failure__set(&thread->failure, took, "%s: connection %u: %s", reading->call,
					   thread->index, strerror(-took));
	}
	if (reading->close)
		reading->close(thread);
	return err;
}

int receiver_thread__try(const struct options *options, int fd, struct failure *failure)
{
	const struct reading *reading = options->reading;
	struct receiver_thread *thread;
	struct arrival arrival = { 0 };
	int err, took = -EAGAIN;

	if (!reading->open)
		return 0;
	thread = aligned_alloc(_Alignof(struct receiver_thread), sizeof(*thread));
	if (!thread)
		return failure__set(failure, -ENOMEM, "--receiver %s: %s", reading->name, strerror(ENOMEM));
	receiver_thread__init(thread, options, 0, fd, -1, NULL);
	err = destination__open(&thread->to, options, failure);
	if (!err)
		err = reading->open(thread);
	if (!err) {
		while (took == -EAGAIN || took == -EINTR)
			took = reading->receive(thread, &arrival);
		reading->close(thread);
		err = took == -ENOTCONN ? 0 : took;
	}
	destination__close(&thread->to);
	free(thread);
	if (!err)
		return 0;
	return failure__set(failure, err, "--receiver %s: %s; it needs %s; or use --receiver read", reading->name,
			    strerror(-err), reading->needs);
}

/* At the end of the stream, check that all bytes are right and that the last message is complete. */
static void check_stream(struct receiver_thread *thread)
{
	const struct options *options = thread->options;
	const struct stream_check *check = &thread->check;
	uint64_t bytes = count__get(&thread->counts.bytes);

	if (check->wrong_bytes)
		failure__set(&thread->failure, -EBADMSG, "verify: connection %u: %llu of %llu bytes are "
			     "wrong, the first at %llu; the sender changed a buffer too early, or its --size, "
			     "--working-set or --touch differ", thread->index,
			     (unsigned long long)check->wrong_bytes,
			     (unsigned long long)check->checked_bytes,
			     (unsigned long long)check->first_wrong_offset);
	if ((options->verify || options->mode == MODE_RR) && bytes % options->shape.size_bytes &&
	    !receiver_thread__is_stopping(thread))
		failure__set(&thread->failure, -EPIPE, "recv: connection %u ended %llu bytes into a "
			     "message", thread->index,
			     (unsigned long long)(bytes % options->shape.size_bytes));
}

static void summarise(struct receiver_thread *thread)
{
	struct thread_summary *summary = &thread->summary;
	size_t size = thread->options->shape.size_bytes;

	summary->tid = syscall(SYS_gettid);
	summary->cpu_ns = (int64_t)clock__read_ns(CLOCK_THREAD_CPUTIME_ID);
	summary->bytes = count__get(&thread->counts.bytes);
	summary->messages = size ? (int64_t)(summary->bytes / size) : -1;
	summary->calls = count__get(&thread->counts.calls);
	summary->sndbuf_bytes = socket__buffer_bytes(thread->fd, SO_SNDBUF);
	summary->rcvbuf_bytes = socket__buffer_bytes(thread->fd, SO_RCVBUF);
	socket__congestion(thread->fd, summary->congestion);
	tcp_state__read(&summary->tcp, thread->fd);
}

void receiver_thread__settled(struct receiver_thread *thread)
{
	count__set(&thread->settled_ns, clock__now_ns());
	atomic_store_explicit(&thread->settled_bytes, receiver_thread__bytes(thread), memory_order_release);
}

/* Return the time of the last byte, or of the last `settle` if no byte came later, because the stream may end much later. */
static uint64_t last_byte_ns(const struct receiver_thread *thread)
{
	uint64_t settled_bytes = atomic_load_explicit(&thread->settled_bytes, memory_order_acquire);

	return settled_bytes == receiver_thread__bytes(thread) ? count__get(&thread->settled_ns) : clock__now_ns();
}

void receiver_thread__finish(struct receiver_thread *thread, int err)
{
	thread->last_ns = last_byte_ns(thread);
	if (!err)
		check_stream(thread);
	summarise(thread);
	atomic_store_explicit(&thread->ended, true, memory_order_release);
	eventfd_write(thread->event_fd, 1);
}

static void *run_thread(void *argument)
{
	struct receiver_thread *thread = argument;
	int err;

	err = placement__pin_thread(&thread->options->placement, thread->index, &thread->failure);
	if (!err)
		err = destination__open(&thread->to, thread->options, &thread->failure);
	if (!err)
		err = read_stream(thread);
	receiver_thread__finish(thread, err);
	destination__close(&thread->to);
	return NULL;
}

void receiver_thread__init(struct receiver_thread *thread, const struct options *options,
			   unsigned int index, int fd, int event_fd, atomic_bool *stopping)
{
	memset(thread, 0, sizeof(*thread));
	thread->fd = fd;
	thread->options = options;
	thread->index = index;
	thread->event_fd = event_fd;
	thread->stopping = stopping;
	thread->check.size_bytes = options->shape.size_bytes;
	thread->check.slots = options->touch ? 0 : options->shape.slots;
}

int receiver_thread__start(struct receiver_thread *thread)
{
	int err = pthread_create(&thread->thread, NULL, run_thread, thread);

	thread->has_thread = !err;
	return -err;
}

void receiver_thread__join(struct receiver_thread *thread)
{
	if (thread->has_thread)
		pthread_join(thread->thread, NULL);
}

void receiver_thread__free(struct receiver_thread *thread)
{
	close(thread->fd);
}
