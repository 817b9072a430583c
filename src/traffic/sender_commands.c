// SPDX-License-Identifier: GPL-2.0-only
#include "clock.h"
#include "sender.h"

/* Time after `stop` until connections are shut down, because a thread may wait for a receiver that does not read. */
#define STOP_LIMIT_NS (5 * NSEC_PER_SEC)

static void emit_time(const char *name)
{
	json_t *event = control__event(name);

	report__set(event, "t_ns", clock__now_ns());
	control__emit(event);
}

void sender__start_sending(struct sender *sender)
{
	sender->phase = SENDER_GOING;
	sender->went_ns = clock__now_ns();
	gate__set(&sender->gate, GATE_OPEN);
}

void sender__end_segment(struct sender *sender)
{
	if (sender->went_ns)
		sender->sending_ns += clock__now_ns() - sender->went_ns;
	sender->went_ns = 0;
}

void sender__stop(struct sender *sender)
{
	if (sender->phase == SENDER_ACCEPTING) {
		sender->phase = SENDER_DONE;
		return;
	}
	sender->phase = SENDER_STOPPING;
	sender->deadline_ns = clock__now_ns() + STOP_LIMIT_NS;
	gate__set(&sender->gate, GATE_CLOSED);
}

static void command_go(void *role, const char *argument)
{
	struct sender *sender = role;

	(void)argument;
	if (sender->phase != SENDER_READY) {
		control__error(&sender->control, "control: go: already running or not connected; send `go` once, after the event `connected`");
		return;
	}
	emit_time("going");
	sender__start_sending(sender);
}

static void command_pause(void *role, const char *argument)
{
	struct sender *sender = role;

	(void)argument;
	if (sender->phase != SENDER_GOING && sender->phase != SENDER_READY &&
	    sender->phase != SENDER_PAUSED) {
		control__error(&sender->control, "control: pause: not connected, or the run is ending");
		return;
	}
	sender->paused_from = sender->phase;
	sender->phase = SENDER_PAUSING;
	gate__set(&sender->gate, GATE_CLOSED);
}

static void command_resume(void *role, const char *argument)
{
	struct sender *sender = role;

	(void)argument;
	if (sender->phase != SENDER_PAUSED) {
		control__error(&sender->control, "control: resume: the traffic is not paused");
		return;
	}
	emit_time("resumed");
	sender__start_sending(sender);
}

static void command_stop(void *role, const char *argument)
{
	struct sender *sender = role;

	(void)argument;
	sender->control.stopping = true;
	if (sender->phase != SENDER_STOPPING)
		sender__stop(sender);
}

static const struct command commands[] = {
	{ "go", command_go },
	{ "pause", command_pause },
	{ "resume", command_resume },
	{ "stop", command_stop },
};

void sender__dispatch_commands(struct sender *sender)
{
	control__dispatch(&sender->control, commands, sizeof(commands) / sizeof(*commands), sender);
}
