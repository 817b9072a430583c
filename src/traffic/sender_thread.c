// SPDX-License-Identifier: GPL-2.0
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

#define RECEIVER_RESTS_NS 20000000
#define TICK_NS 4000000		/* of a kernel with HZ=250 */

/*
 * Which message of each window of time_every is timed is random: a fixed distance could fall in step
 * with something periodic (the ring, the receiver's reads) and see only one side of it.
 */
static void choose_timed(struct sender_thread *thread)
{
	uint64_t window = thread->options->time_every;
	uint64_t place;

	/* xorshift64 */
	thread->random ^= thread->random << 13;
	thread->random ^= thread->random >> 7;
	thread->random ^= thread->random << 17;
	place = thread->random % window;
	thread->until_timed = thread->window_left + place + 1;
	thread->window_left = window - 1 - place;
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
					    "recv: reply: the receiver closed the connection");
		return failure__set(&flow->failure, -errno, "recv: reply: %s", strerror(errno));
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
 * A broken connection gives its buffers back, too; the first failure stays the reason.
 */
static void give_up(struct sender_thread *thread, int err)
{
	const struct strategy *strategy = thread->options->strategy;

	thread->err = err;
	if (thread->prepared && strategy->reap)
		strategy->reap(&thread->flow, true);
	atomic_store_explicit(&thread->failed, true, memory_order_release);
}

static int send_next(struct sender_thread *thread)
{
	const struct options *options = thread->options;
	struct message *message = ring__next(&thread->ring);
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
	marker__execute(MARKER_SENDER);
	err = --thread->until_timed ? send_untimed(thread, message) : send_timed(thread, message);
	if (err)
		return err;
	thread->flow.counts.messages++;
	thread->messages_left--;
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

static int prepare(struct sender_thread *thread, unsigned int place)
{
	const struct options *options = thread->options;
	struct flow *flow = &thread->flow;
	int err;

	thread->summary.tid = syscall(SYS_gettid);
	/* The short waits of a pause shall not be rounded up to 50 us. */
	prctl(PR_SET_TIMERSLACK, 1);
	/* Pinned before the memory is touched: it then lies on this CPU's node. */
	err = placement__pin_thread(&options->placement, place, &flow->failure);
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
		return failure__set(&flow->failure, -ENOMEM, "thread: %s", strerror(ENOMEM));
	if (options->strategy->relays)
		err = upstream__open(flow, &thread->ring, options);
	if (err)
		return err;
	return options->strategy->open ? options->strategy->open(flow) : 0;
}

void sender_thread__prepare(struct sender_thread *thread, unsigned int place)
{
	int err = prepare(thread, place);

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
 * A connection that failed is reset: the kernel may still refer to buffers that are freed next, and
 * must not send what comes to lie there.
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
 * Both sides at rest: what the receiver has not read yet it reads while this one sleeps, or, where time is not counted in
 * instructions, until it says so.
 */
static void rest_both(struct sender_thread *thread)
{
	const struct timespec while_it_reads = { .tv_nsec = RECEIVER_RESTS_NS };
	int err = 0;

	sender_thread__rest(thread);
	if (thread->options->answered && thread->flow.counts.bytes && !thread->err)
		err = read_reply(&thread->flow);
	if (err)
		give_up(thread, err);
	nanosleep(&while_it_reads, NULL);
}

/*
 * The tick of a simulated machine may be its only timer. It ends every sleep, so all boots would begin to count at the same
 * moment of a tick: this moment is drawn by the seed.
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

/* All stand still where one of them executes a marker. Every thread comes to each of these, also one that has failed. */
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
	/* Cut short it is no measurement. */
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
		if (going)
			sender_thread__rest(thread);
		going = true;
	} while (gate__park(thread->gate, !sender_thread__has_more(thread)));
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
	/* xorshift must not start at 0; odd multiples keep the threads apart. */
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
	/* At the end of its thread a summary is made; before, its clock goes on. */
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
	/* It had no thread whose time could be told. */
	thread->summary.cpu_ns = -1;
}
