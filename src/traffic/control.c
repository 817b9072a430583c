// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "clock.h"
#include "control.h"

int control__open(struct control *control, bool enabled)
{
	sigset_t signals;

	memset(control, 0, sizeof(*control));
	control->enabled = enabled;
	control->listening = enabled;
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	/* All threads inherit this mask of blocked signals. */
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	control->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
	return control->signal_fd < 0 ? -errno : 0;
}

void control__close(struct control *control)
{
	if (control->signal_fd >= 0)
		close(control->signal_fd);
}

static void read_input(struct control *control)
{
	size_t room = sizeof(control->input) - control->length;
	ssize_t got = read(STDIN_FILENO, control->input + control->length, room);

	if (got < 0 && errno == EINTR)
		return;
	if (got <= 0 && !control->stopping)
		_exit(1);
	if (got <= 0) {
		control->listening = false;
		return;
	}
	control->length += got;
	if (control->length == sizeof(control->input) && !memchr(control->input, '\n', control->length)) {
		control__error(control, "control: command line longer than %zu bytes", sizeof(control->input));
		control->length = 0;
	}
}

unsigned int control__wait(struct control *control, int event_fd, uint64_t deadline_ns)
{
	struct pollfd fds[] = {
		{ .fd = control->signal_fd, .events = POLLIN },
		{ .fd = event_fd, .events = POLLIN },
		{ .fd = control->listening ? STDIN_FILENO : -1, .events = POLLIN },
	};
	uint64_t now_ns = clock__now_ns();
	struct signalfd_siginfo received;
	struct timespec left = { 0 };
	unsigned int woke = 0;

	if (deadline_ns > now_ns) {
		left.tv_sec = (deadline_ns - now_ns) / NSEC_PER_SEC;
		left.tv_nsec = (deadline_ns - now_ns) % NSEC_PER_SEC;
	}
	if (ppoll(fds, 3, deadline_ns ? &left : NULL, NULL) < 0)
		return 0;
	if (fds[0].revents && read(control->signal_fd, &received, sizeof(received)) > 0)
		woke |= WOKE_SIGNAL;
	if (fds[1].revents)
		woke |= WOKE_EVENT;
	if (fds[2].revents) {
		read_input(control);
		woke |= WOKE_COMMAND;
	}
	if (deadline_ns && clock__now_ns() >= deadline_ns)
		woke |= WOKE_DEADLINE;
	return woke;
}

static void run_line(struct control *control, const struct command *commands, size_t count,
		     void *role, char *line)
{
	char *argument = strchr(line, ' ');

	if (argument)
		*argument++ = '\0';
	for (size_t i = 0; i < count; i++)
		if (!strcmp(commands[i].name, line)) {
			commands[i].run(role, argument ? argument : "");
			return;
		}
	control__error(control, "control: unknown command '%s'", line);
}

void control__dispatch(struct control *control, const struct command *commands, size_t count,
		       void *role)
{
	char *end;

	while ((end = memchr(control->input, '\n', control->length))) {
		size_t used = end - control->input + 1;
		char line[sizeof(control->input)];

		memcpy(line, control->input, used);
		line[used - 1] = '\0';
		control->length -= used;
		memmove(control->input, control->input + used, control->length);
		run_line(control, commands, count, role, line);
	}
}

void control__emit(json_t *object)
{
	int err = json_dumpf(object, stdout, JSON_COMPACT);

	json_decref(object);
	if (err || putchar('\n') == EOF || fflush(stdout)) {
		fprintf(stderr, "traffic: cannot write to stdout: %s\n", strerror(errno));
		_exit(1);
	}
}

json_t *control__event(const char *name)
{
	json_t *object = json_object();

	json_object_set_new(object, "event", json_string(name));
	return object;
}

void control__error(struct control *control, const char *format, ...)
{
	char text[512];
	json_t *event;
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (!control->enabled) {
		fprintf(stderr, "traffic: %s\n", text);
		return;
	}
	event = control__event("error");
	json_object_set_new(event, "message", json_string(text));
	control__emit(event);
}
