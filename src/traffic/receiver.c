// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "preflight.h"
#include "receiver.h"

#define SETTLE_LIMIT_NS (5 * NSEC_PER_SEC)
#define SETTLE_POLL_NS 20000

static uint64_t received_bytes(struct receiver *receiver)
{
	uint64_t bytes = 0;

	for (unsigned int i = 0; i < receiver->started; i++)
		bytes += receiver_thread__bytes(&receiver->threads[i]);
	return bytes;
}

/*
 * Run the command `settle BYTES`: wait until BYTES bytes are received in total, then report totals. The sender has paused and
 * all its bytes are in our kernel, so the wait takes microseconds. No event reports the last byte, so poll the counter, and
 * exit if the controlling program dies meanwhile.
 */
static void command_settle(void *role, const char *argument)
{
	const struct timespec pause = { .tv_nsec = SETTLE_POLL_NS };
	uint64_t deadline_ns = clock__now_ns() + SETTLE_LIMIT_NS;
	struct receiver *receiver = role;
	uint64_t expected, got;
	json_t *totals;
	char *end;

	expected = strtoumax(argument, &end, 10);
	if (end == argument || *end) {
		control__error(&receiver->control, "control: settle %s: not a number of bytes",
			       argument);
		return;
	}
	gate__set(&receiver->gate, GATE_OPEN);
	while ((got = received_bytes(receiver)) < expected) {
		struct pollfd controller = { .fd = STDIN_FILENO, .events = 0 };

		if (clock__now_ns() > deadline_ns)
			break;
		if (ppoll(&controller, 1, &pause, NULL) > 0)
			_exit(1);
	}
	if (got != expected) {
		control__error(&receiver->control, "settle: received %" PRIu64 " of %" PRIu64 " bytes: %s",
			       got, expected, got < expected ? "the rest did not arrive in time"
							     : "more than the sender has sent");
		return;
	}
	for (unsigned int i = 0; i < receiver->started; i++)
		receiver_thread__settled(&receiver->threads[i]);
	totals = control__event("mark");
	receiver__add_totals(receiver, totals);
	control__emit(totals);
}

static void command_stop(void *role, const char *argument)
{
	struct receiver *receiver = role;

	(void)argument;
	receiver->control.stopping = true;
	receiver->asked_to_stop = true;
	gate__set(&receiver->gate, GATE_DISMISSED);
}

static const struct command commands[] = {
	{ "settle", command_settle },
	{ "stop", command_stop },
};

static void record_failure(struct receiver *receiver, const char *text)
{
	json_array_append_new(receiver->errors, json_string(text));
	control__error(&receiver->control, "%s", text);
}

/* Report new failures of threads that have ended, and return the number of threads that still read. */
static unsigned int check_threads(struct receiver *receiver)
{
	unsigned int reading = 0;

	for (unsigned int i = 0; i < receiver->started; i++) {
		struct receiver_thread *thread = &receiver->threads[i];

		if (!atomic_load_explicit(&thread->ended, memory_order_acquire)) {
			reading++;
		} else if (failure__happened(&thread->failure) && !thread->announced) {
			thread->announced = true;
			record_failure(receiver, thread->failure.text);
		}
	}
	return reading;
}

static void interrupt(struct receiver *receiver)
{
	receiver->interrupted = true;
	receiver->asked_to_stop = true;
	atomic_store_explicit(&receiver->stopping, true, memory_order_relaxed);
	for (unsigned int i = 0; i < receiver->started; i++)
		shutdown(receiver->threads[i].fd, SHUT_RDWR);
	gate__set(&receiver->gate, GATE_DISMISSED);
}

/* Wait until every connection has ended and, with --control, the controlling program has sent `stop`. */
static void run_threads(struct receiver *receiver)
{
	while (check_threads(receiver) ||
	       (receiver->control.enabled && !receiver->asked_to_stop)) {
		unsigned int woke = control__wait(&receiver->control, receiver->event_fd, 0);
		eventfd_t ended;

		if (woke & WOKE_EVENT)
			eventfd_read(receiver->event_fd, &ended);
		if (woke & WOKE_COMMAND)
			control__dispatch(&receiver->control, commands,
					  sizeof(commands) / sizeof(*commands), receiver);
		if (woke & WOKE_SIGNAL)
			interrupt(receiver);
	}
	for (unsigned int i = 0; i < receiver->started; i++)
		receiver_thread__join(&receiver->threads[i]);
}

static void free_connections(struct receiver *receiver)
{
	for (unsigned int i = 0; i < receiver->started; i++)
		receiver_thread__free(&receiver->threads[i]);
	receiver->started = 0;
}

static int connect_one(struct receiver *receiver, struct failure *failure)
{
	const struct options *options = &receiver->options;
	unsigned int index = receiver->started;
	struct receiver_thread *thread = &receiver->threads[index];
	int fd = socket__connect(&options->socket, failure);
	int err = 0;

	if (fd < 0)
		return fd;
	err = options->tls ? tls__start(fd, options->tls, false, failure) : 0;
	if (err) {
		close(fd);
		return err;
	}
	if (!index)
		socket__congestion(fd, receiver->options.socket.congestion_used);
	receiver_thread__init(thread, options, index, fd, receiver->event_fd, &receiver->stopping);
	thread->gate = options->rewrite ? &receiver->gate : NULL;
	if (!options->reading->start)
		err = receiver_thread__start(thread);
	if (err) {
		close(fd);
		return failure__set(failure, err, "cannot start thread %u: %s; lower --threads", index, strerror(-err));
	}
	receiver->started++;
	return 0;
}

/* Start the thread that reads all connections, even if the connections are shut down right away. */
static int start_common_thread(struct receiver *receiver, struct failure *failure)
{
	int err = receiver->options.reading->start(receiver->threads, receiver->started);

	if (!err)
		return 0;
	free_connections(receiver);
	return failure__set(failure, err, "cannot start a thread: %s", strerror(-err));
}

static int connect_all(struct receiver *receiver, struct failure *failure)
{
	const struct options *options = &receiver->options;
	json_t *event;
	int err = 0;

	while (!err && receiver->started < options->threads)
		err = connect_one(receiver, failure);
	if (options->reading->start && receiver->started && start_common_thread(receiver, failure))
		return -1;
	if (err)
		return err;
	if (!receiver->control.enabled)
		return 0;
	event = control__event("connected");
	report__set(event, "threads", receiver->started);
	report__set(event, "pid", getpid());
	control__emit(event);
	return 0;
}

static int exit_status(struct receiver *receiver)
{
	return json_array_size(receiver->errors) || (receiver->interrupted && !received_bytes(receiver));
}

int receiver__run(const struct options *options)
{
	struct receiver receiver = { .options = *options, .event_fd = -1, .gate.event_fd = -1 };
	struct failure failure = { "" };
	int status = 1;
	int err;

	err = preflight__check(options, &failure);
	if (err) {
		fprintf(stderr, "traffic recv: %s\n", failure.text);
		return EXIT_USAGE;
	}
	/* Without this setting the kernel rounds the waits of `settle` up to 50 us. */
	prctl(PR_SET_TIMERSLACK, 1);
	receiver.tls_before = tls__begun(false);
	placement__confine_process(&options->placement);
	receiver.errors = json_array();
	err = control__open(&receiver.control, options->control);
	if (!err) {
		receiver.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		err = receiver.event_fd < 0 ? -errno : 0;
	}
	if (!err)
		err = gate__init(&receiver.gate, options->threads);
	receiver.threads = aligned_alloc(_Alignof(struct receiver_thread),
					 options->threads * sizeof(*receiver.threads));
	if (err || !receiver.threads) {
		fprintf(stderr, "traffic recv: cannot start: %s\n", strerror(err ? -err : ENOMEM));
		goto cleanup;
	}
	if (connect_all(&receiver, &failure)) {
		record_failure(&receiver, failure.text);
		interrupt(&receiver);
		receiver.interrupted = false;
	}
	run_threads(&receiver);
	status = exit_status(&receiver);
	control__emit(receiver__report(&receiver));
cleanup:
	free_connections(&receiver);
	free(receiver.threads);
	if (receiver.event_fd >= 0)
		close(receiver.event_fd);
	gate__destroy(&receiver.gate);
	control__close(&receiver.control);
	json_decref(receiver.errors);
	return status;
}
