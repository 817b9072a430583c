// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "memory.h"
#include "preflight.h"
#include "sender.h"
#include "sender_loop.h"

static void emit_totals(struct sender *sender, const char *event)
{
	json_t *totals = control__event(event);

	sender__add_totals(sender, totals);
	control__emit(totals);
}

static void record_failure(struct sender *sender, const char *text)
{
	json_array_append_new(sender->errors, json_string(text));
	control__error(&sender->control, "%s", text);
}

/* Accept a connection. Return 0, -EAGAIN if no connection waits, or another -errno with the reason in `failure`. */
static int accept_one(struct sender *sender, struct failure *failure)
{
	struct sender_thread *thread = &sender->threads[sender->started];
	int fd = socket__accept(sender->listener, failure);
	int err = 0;

	if (fd < 0)
		return fd;
	err = sender->options.tls ? tls__start(fd, sender->options.tls, true, failure) : 0;
	if (err) {
		close(fd);
		return err;
	}
	if (!sender->started)
		socket__congestion(fd, sender->options.socket.congestion_used);
	sender_thread__init(thread, &sender->options, &sender->gate, &sender->together, sender->started, fd);
	if (sender->options.sending == SENDING_THREADS)
		err = sender_thread__start(thread);
	if (err) {
		close(fd);
		return failure__set(failure, err, "cannot start thread %u: %s; lower --threads", sender->started,
				    strerror(-err));
	}
	sender->started++;
	return 0;
}

static void accept_connections(struct sender *sender)
{
	struct failure failure = { "" };
	int err = 0;

	while (!err && sender->started < sender->options.threads)
		err = accept_one(sender, &failure);
	if (err == -EAGAIN)
		return;
	if (!err && sender->options.sending == SENDING_LOOP) {
		err = sender_loop__start(sender->threads, sender->started);
		if (err)
			failure__set(&failure, err, "cannot start a thread: %s", strerror(-err));
	}
	if (err) {
		record_failure(sender, failure.text);
		sender->phase = SENDER_DONE;
		return;
	}
	sender->phase = SENDER_PREPARING;
}

static bool announce_failures(struct sender *sender)
{
	bool any = false;

	for (unsigned int i = 0; i < sender->started; i++) {
		struct sender_thread *thread = &sender->threads[i];

		if (!atomic_load_explicit(&thread->failed, memory_order_acquire) || thread->announced)
			continue;
		thread->announced = true;
		record_failure(sender, thread->flow.failure.text);
		any = true;
	}
	return any;
}

/* Return the PIDs of the processes that send to a relay. */
static json_t *feeders_json(const struct sender *sender)
{
	json_t *pids = json_array();

	for (unsigned int i = 0; i < sender->started; i++)
		if (sender->threads[i].flow.feeder)
			json_array_append_new(pids, json_integer(sender->threads[i].flow.feeder));
	return pids;
}

static void become_ready(struct sender *sender)
{
	sender->phase = SENDER_READY;
	sender->huge_bytes = memory__huge_bytes_in_use();
	if (sender->control.enabled) {
		json_t *event;

		/* An `error` event has been sent in place of the event `connected`. */
		if (json_array_size(sender->errors))
			return;
		event = control__event("connected");
		report__set(event, "threads", sender->started);
		if (sender->options.strategy->relays)
			json_object_set_new(event, "feeders", feeders_json(sender));
		control__emit(event);
		return;
	}
	sender__start_sending(sender);
	if (sender->options.duration_s)
		sender->deadline_ns = sender->went_ns +
				      (uint64_t)(sender->options.duration_s * NSEC_PER_SEC);
}

/* End the run: all threads have sent all their messages, or have failed. */
static void finish(struct sender *sender)
{
	if (!sender->control.enabled) {
		sender__stop(sender);
		return;
	}
	sender__end_segment(sender);
	sender->phase = SENDER_PAUSED;
	if (!sender->finished && !json_array_size(sender->errors))
		emit_totals(sender, "finished");
	sender->finished = true;
}

/* Handle an event of the gate: enter the next phase if all threads have parked. */
static void handle_gate_event(struct sender *sender)
{
	gate__acknowledge(&sender->gate);
	if (announce_failures(sender) && !sender->control.enabled && sender->phase < SENDER_STOPPING)
		sender__stop(sender);
	if (!gate__all_parked(&sender->gate))
		return;
	switch (sender->phase) {
	case SENDER_PREPARING:
		become_ready(sender);
		break;
	case SENDER_GOING:
		if (gate__all_retired(&sender->gate))
			finish(sender);
		break;
	case SENDER_PAUSING:
		sender__end_segment(sender);
		sender->phase = sender->paused_from == SENDER_READY ? SENDER_READY : SENDER_PAUSED;
		emit_totals(sender, "mark");
		break;
	case SENDER_STOPPING:
		sender__end_segment(sender);
		sender->phase = SENDER_DONE;
		break;
	default:
		break;
	}
}

/* Shut down all connections, so that the calls of threads that wait for the receiver fail. */
static void cut_off(struct sender *sender)
{
	if (!sender->cut_off)
		record_failure(sender, "stop: the receiver does not read, so the connections were shut down");
	sender->cut_off = true;
	sender->deadline_ns = 0;
	for (unsigned int i = 0; i < sender->started; i++) {
		shutdown(sender->threads[i].flow.fd, SHUT_RDWR);
		if (sender->options.strategy->relays)
			shutdown(sender->threads[i].flow.upstream, SHUT_RDWR);
	}
}

static void run_phases(struct sender *sender)
{
	while (sender->phase != SENDER_DONE) {
		enum sender_phase phase = sender->phase;
		bool accepting = phase == SENDER_ACCEPTING;
		int event_fd = accepting ? sender->listener : sender->gate.event_fd;
		unsigned int woke = control__wait(&sender->control, event_fd, sender->deadline_ns);

		if (woke & WOKE_COMMAND)
			sender__dispatch_commands(sender);
		if (woke & WOKE_EVENT && accepting)
			accept_connections(sender);
		else if (woke & WOKE_EVENT)
			handle_gate_event(sender);
		if (woke & (WOKE_DEADLINE | WOKE_SIGNAL)) {
			sender->interrupted |= !!(woke & WOKE_SIGNAL);
			if (phase == SENDER_STOPPING)
				cut_off(sender);
			else if (sender->phase < SENDER_STOPPING)
				sender__stop(sender);
		}
	}
	gate__set(&sender->gate, GATE_DISMISSED);
	for (unsigned int i = 0; i < sender->started; i++)
		sender_thread__join(&sender->threads[i]);
}

static void announce_listener(struct sender *sender)
{
	char address[80];
	json_t *event;

	sender->options.socket.port = socket__port(sender->listener);
	if (!sender->control.enabled) {
		socket__describe(sender->listener, address, sizeof(address));
		fprintf(stderr, "listening on %s\n", address);
		return;
	}
	event = control__event("listening");
	report__set(event, "port", sender->options.socket.port);
	report__set(event, "pid", getpid());
	control__emit(event);
}

static int exit_status(const struct sender *sender)
{
	uint64_t bytes = 0;

	for (unsigned int i = 0; i < sender->started; i++)
		bytes += sender->threads[i].summary.bytes;
	return json_array_size(sender->errors) || (sender->interrupted && !bytes);
}

int sender__run(const struct options *options)
{
	struct sender sender = { .options = *options, .listener = -1, .huge_bytes = -1 };
	struct failure failure = { "" };
	int status = 1;
	int err;

	sender.gate.event_fd = -1;
	err = preflight__check(options, &failure);
	if (err) {
		fprintf(stderr, "traffic send: %s\n", failure.text);
		return EXIT_USAGE;
	}
	sender.tls_before = tls__begun(true);
	placement__confine_process(&options->placement);
	sender.errors = json_array();
	err = control__open(&sender.control, options->control);
	if (!err)
		err = gate__init(&sender.gate, options->sending == SENDING_LOOP ? 1 : options->threads);
	if (!err)
		err = -pthread_barrier_init(&sender.together.all, NULL, options->threads);
	sender.threads = aligned_alloc(_Alignof(struct sender_thread),
				       options->threads * sizeof(*sender.threads));
	if (err || !sender.threads) {
		fprintf(stderr, "traffic send: cannot start: %s\n", strerror(err ? -err : ENOMEM));
		goto cleanup;
	}
	sender.listener = socket__listen(&options->socket, options->threads, &failure);
	if (sender.listener < 0) {
		fprintf(stderr, "traffic send: %s\n", failure.text);
		goto cleanup;
	}
	announce_listener(&sender);
	run_phases(&sender);
	status = exit_status(&sender);
	control__emit(sender__report(&sender));
cleanup:
	free(sender.threads);
	if (sender.listener >= 0)
		close(sender.listener);
	gate__destroy(&sender.gate);
	control__close(&sender.control);
	json_decref(sender.errors);
	return status;
}
