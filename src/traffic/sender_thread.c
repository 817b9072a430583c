// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"
#include "marker.h"
#include "sender_thread.h"
#include "upstream.h"

#define RECEIVER_DRAIN_NS 20000000	/* time for the receiver to read what has arrived */
#define TICK_NS 4000000			/* timer tick of a kernel with HZ=250 */

/*
 * Choose the next timed message: a random message in each window of time_every messages. A fixed distance could coincide with
 * a period of the ring or of the receiver's reads, and then the timed messages would not represent all messages.
 */
static void choose_timed(struct sender_thread *thread)
{
	uint64_t window = thread->options->time_every;
	uint64_t index_in_window;

	/* xorshift64 */
	thread->random ^= thread->random << 13;
	thread->random ^= thread->random >> 7;
	thread->random ^= thread->random << 17;
	index_in_window = thread->random % window;
	thread->until_timed = thread->window_left + index_in_window + 1;
	thread->window_left = window - 1 - index_in_window;
}

static int read_reply(struct flow *flow)
{
	char reply;

	for (;;) {
		ssize_t got = recv(flow->fd, &reply, 1, 0);

		if (got == 1)
			return 0;
		if (got < 0 && errno == EINTR)
			continue;
		if (!got)
			return failure__set(&flow->failure, -ECONNRESET,
					    "recv of a reply: the receiver closed the connection; see its messages");
		return failure__set(&flow->failure, -errno, "recv of a reply: %s", strerror(errno));
	}
}

static int send_timed(struct sender_thread *thread, struct message *message)
{
	struct flow *flow = &thread->flow;
	uint64_t begin_ns, end_ns;
	int err;

	flow->timed = true;
	begin_ns = clock__now_ns();
	err = thread->options->strategy->send(flow, message);
	end_ns = clock__now_ns();
	flow->timed = false;
	if (err)
		return err;
	histogram__add(&thread->send_time, end_ns - begin_ns);
	if (flow->expects_reply) {
		err = read_reply(flow);
		if (err)
			return err;
		end_ns = clock__now_ns();
		histogram__add(&thread->round_trip, end_ns - begin_ns);
	}
	choose_timed(thread);
	return 0;
}

static int send_untimed(struct sender_thread *thread, struct message *message)
{
	struct flow *flow = &thread->flow;
	int err = thread->options->strategy->send(flow, message);

	return !err && flow->expects_reply ? read_reply(flow) : err;
}

/*
 * Mark the connection as failed. Zero-copy sends in flight on a broken connection also complete, so wait for their
 * notifications. A second failure does not replace the first reason.
 */
static void give_up(struct sender_thread *thread, int err)
{
	const struct strategy *strategy = thread->options->strategy;

	thread->err = err;
	if (thread->prepared && strategy->reap)
		strategy->reap(&thread->flow, true);
	atomic_store_explicit(&thread->failed, true, memory_order_release);
}

/* Implement --rewrite: overwrite a message although the kernel may still send its memory. The receiver detects the change. */
static int rewrite(struct sender_thread *thread, struct message *message)
{
	struct flow *flow = &thread->flow;
	uint64_t returned_ns = clock__now_ns();
	int err = 0;

	if (thread->options->rewrite == REWRITE_ARRIVED) {
		err = socket__drain(flow->fd, &flow->failure);
		thread->arrived_ns = clock__now_ns() - returned_ns;
	}
	message__fill(message, flow->shape.fields, REWRITE_NEW);
	return err;
}

static int send_next(struct sender_thread *thread)
{
	const struct options *options = thread->options;
	struct message *message = ring__next(&thread->ring);
	bool rewritten = options->rewrite && thread->messages_left == 1;
	int err = 0;

	while (message->pending && !err)
		err = options->strategy->reap(&thread->flow, false);
	if (err)
		return err;
	if (options->touch) {
		if (options->verify)
			message__write_pattern(message, options->shape.fields,
					       thread->flow.counts.messages);
		else
			message__write_letters(message, options->shape.fields);
	}
	if (rewritten)
		message__fill(message, options->shape.fields, REWRITE_OLD);
	marker__execute(MARKER_SENDER);
	err = --thread->until_timed ? send_untimed(thread, message) : send_timed(thread, message);
	if (err)
		return err;
	thread->flow.counts.messages++;
	thread->messages_left--;
	if (rewritten)
		return rewrite(thread, message);
	while (options->wait == NOTICES_EACH && message->pending && !err)
		err = options->strategy->reap(&thread->flow, false);
	return err;
}

void sender_thread__send_next(struct sender_thread *thread)
{
	int err = send_next(thread);

	if (err)
		give_up(thread, err);
}

static int prepare(struct sender_thread *thread, unsigned int cpu_index)
{
	const struct options *options = thread->options;
	struct flow *flow = &thread->flow;
	int err;

	thread->summary.tid = syscall(SYS_gettid);
	/* Without this setting the kernel rounds the short waits of a pause up to 50 us. */
	prctl(PR_SET_TIMERSLACK, 1);
	/* Pin the thread before it touches its memory, so that the memory is on the NUMA node of this CPU. */
	err = placement__pin_thread(&options->placement, cpu_index, &flow->failure);
	if (err)
		return err;
	err = ring__open(&thread->ring, &options->shape, &flow->failure);
	if (err)
		return err;
	flow->file = thread->ring.file;
	flow->arena = thread->ring.arena;
	flow->arena_bytes = thread->ring.arena_bytes;
	for (unsigned int i = 0; i < options->shape.slots; i++)
		if (options->verify)
			message__write_pattern(&thread->ring.messages[i], options->shape.fields, i);
		else
			message__write_letters(&thread->ring.messages[i], options->shape.fields);
	flow->rest = calloc(options->shape.fields, sizeof(*flow->rest));
	if (!flow->rest)
		return failure__set(&flow->failure, -ENOMEM, "cannot prepare a thread: %s", strerror(ENOMEM));
	if (options->strategy->relays)
		err = upstream__open(flow, &thread->ring, options);
	if (err)
		return err;
	return options->strategy->open ? options->strategy->open(flow) : 0;
}

void sender_thread__prepare(struct sender_thread *thread, unsigned int cpu_index)
{
	int err = prepare(thread, cpu_index);

	thread->prepared = !err;
	if (err)
		give_up(thread, err);
}

static int come_to_rest(struct sender_thread *thread)
{
	const struct strategy *strategy = thread->options->strategy;
	struct flow *flow = &thread->flow;
	int err = strategy->reap ? strategy->reap(flow, true) : 0;

	return err ? err : socket__drain(flow->fd, &flow->failure);
}

void sender_thread__rest(struct sender_thread *thread)
{
	int err = thread->err ? 0 : come_to_rest(thread);

	if (err)
		give_up(thread, err);
}

static void summarise(struct sender_thread *thread)
{
	struct thread_summary *summary = &thread->summary;
	const struct send_counts *counts = &thread->flow.counts;

	summary->cpu_ns = clock__read_ns(CLOCK_THREAD_CPUTIME_ID);
	summary->bytes = counts->bytes;
	summary->messages = counts->messages;
	summary->calls = send_counts__calls(counts);
	summary->sndbuf_bytes = socket__buffer_bytes(thread->flow.fd, SO_SNDBUF);
	summary->rcvbuf_bytes = socket__buffer_bytes(thread->flow.fd, SO_RCVBUF);
	socket__congestion(thread->flow.fd, summary->congestion);
	tcp_state__read(&summary->tcp, thread->flow.fd);
}

/*
 * Close a connection. Reset it if it has failed: the kernel may still refer to buffers that are freed next, and must not send
 * the memory's new content.
 */
static void close_connection(int fd, bool reset)
{
	const struct linger now = { .l_onoff = 1 };

	if (reset)
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(fd);
}

void sender_thread__finish(struct sender_thread *thread)
{
	const struct strategy *strategy = thread->options->strategy;

	summarise(thread);
	if (strategy->close && thread->prepared)
		strategy->close(&thread->flow);
	close_connection(thread->flow.fd, thread->err);
	upstream__close(&thread->flow);
	ring__close(&thread->ring);
	free(thread->flow.rest);
	thread->finished = true;
}

/*
 * Wait until nothing is in flight and the receiver has read everything. The receiver reads while this thread sleeps. If
 * simulated time does not depend on instructions (--answered), also wait for the receiver's answer.
 */
static void rest_both(struct sender_thread *thread)
{
	const struct timespec drain_time = { .tv_nsec = RECEIVER_DRAIN_NS };
	int err = 0;

	sender_thread__rest(thread);
	if (thread->options->answered && thread->flow.counts.bytes && !thread->err)
		err = read_reply(&thread->flow);
	if (err)
		give_up(thread, err);
	nanosleep(&drain_time, NULL);
}

/*
 * Wait for a random part of a timer tick. The tick may be the only timer of a simulated machine; every sleep ends at a tick, so
 * without this wait the counting of all boots would start at the same point of a tick. The seed determines the length.
 */
static void wait_within_a_tick(const struct sender_thread *thread)
{
	uint64_t until_ns = clock__now_ns() + thread->random % TICK_NS;

	while (clock__now_ns() < until_ns)
		;
}

static void wait_for_all(struct sender_thread *thread)
{
	if (thread->options->threads > 1)
		pthread_barrier_wait(&thread->together->all);
}

/*
 * Send the warm-up and the counted messages, and execute the markers of the simulator. All threads wait at a barrier while the
 * first thread executes a marker. Failed threads reach every barrier, too.
 */
static void send_simulated(struct sender_thread *thread)
{
	uint64_t counted = thread->options->messages;
	bool leads = !thread->index;

	if (leads)
		marker__execute(MARKER_WARM);
	wait_for_all(thread);
	while (sender_thread__has_more(thread) && gate__is_open(thread->gate) && thread->messages_left > counted)
		sender_thread__send_next(thread);
	rest_both(thread);
	wait_for_all(thread);
	if (leads) {
		wait_within_a_tick(thread);
		marker__execute(MARKER_COUNT);
	}
	wait_for_all(thread);
	while (sender_thread__has_more(thread) && gate__is_open(thread->gate))
		sender_thread__send_next(thread);
	rest_both(thread);
	/* Leave out MARKER_STOP if a thread has not sent all its messages, because the count is then useless. */
	if (thread->err || thread->messages_left)
		atomic_store(&thread->together->cut_short, true);
	wait_for_all(thread);
	if (leads && !atomic_load(&thread->together->cut_short))
		marker__execute(MARKER_STOP);
	wait_for_all(thread);
}

static void *run_thread(void *argument)
{
	struct sender_thread *thread = argument;
	bool going = false;

	sender_thread__prepare(thread, thread->index);
	do {
		if (going && thread->options->simulated)
			send_simulated(thread);
		while (sender_thread__has_more(thread) && gate__is_open(thread->gate))
			sender_thread__send_next(thread);
		/* With --rewrite the receiver does not read before the event `finished`. */
		if (going && !thread->options->rewrite)
			sender_thread__rest(thread);
		going = true;
	} while (gate__park(thread->gate, !sender_thread__has_more(thread)));
	if (thread->options->rewrite)
		sender_thread__rest(thread);
	sender_thread__finish(thread);
	return NULL;
}

void sender_thread__init(struct sender_thread *thread, const struct options *options,
			 struct gate *gate, struct together *together, unsigned int index, int fd)
{
	memset(thread, 0, sizeof(*thread));
	thread->options = options;
	thread->gate = gate;
	thread->together = together;
	thread->index = index;
	thread->ring.file = -1;
	thread->messages_left = options->messages ? options->warm_messages + options->messages : UINT64_MAX;
	/* xorshift must not start at 0. Each thread gets a different state. */
	thread->random = (options->seed + 1) * 0x9e3779b97f4a7c15ull + 2 * index + 1;
	choose_timed(thread);
	thread->flow = (struct flow){
		.fd = fd,
		.upstream = -1,
		.expects_reply = options->mode == MODE_RR,
		.rewrites = options->touch,
		.encrypts = options->tls,
		.issue = options->issue,
		.push = options->push,
		.call = options->call,
		.via = options->via,
		.wait = options->wait,
		.batch = options->batch,
		.shape = options->shape,
		.completion_time = &thread->completion_time,
	};
}

int sender_thread__start(struct sender_thread *thread)
{
	int err = pthread_create(&thread->thread, NULL, run_thread, thread);

	thread->has_thread = !err;
	return -err;
}

int64_t sender_thread__cpu_ns(const struct sender_thread *thread)
{
	clockid_t clock;

	if (!thread->has_thread)
		return 0;
	/* The summary has the CPU time of a thread that has ended. For a running thread, read its clock. */
	if (thread->joined)
		return thread->summary.cpu_ns;
	return pthread_getcpuclockid(thread->thread, &clock) ? 0 : (int64_t)clock__read_ns(clock);
}

void sender_thread__join(struct sender_thread *thread)
{
	if (thread->has_thread)
		pthread_join(thread->thread, NULL);
	thread->joined = true;
	if (thread->finished)
		return;
	sender_thread__finish(thread);
	/* No thread ran for this connection, so there is no CPU time. */
	thread->summary.cpu_ns = -1;
}
