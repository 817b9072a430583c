// SPDX-License-Identifier: GPL-2.0-only
/*
 * Passes commands to the simulator. tell warm|count|stop: execute this marker. tell say NAME: print a line of the guest, with text
 * from stdin. tell symbols: pass functions in the format of /proc/kallsyms from stdin. tell end: turn the guest off.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../../src/guest/channel.h"
#include "../../src/traffic/marker.h"

static void pass_on(void (*write_to)(const char *text, unsigned long length))
{
	static char text[64 << 10];
	ssize_t length;

	while ((length = read(STDIN_FILENO, text, sizeof(text))) > 0)
		write_to(text, length);
}

int main(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "";

	if (!strcmp(verb, "warm")) {
		marker__execute(MARKER_WARM);
	} else if (!strcmp(verb, "count")) {
		marker__execute(MARKER_COUNT);
	} else if (!strcmp(verb, "stop")) {
		marker__execute(MARKER_STOP);
	} else if (channel__open()) {
		return 1;
	} else if (!strcmp(verb, "symbols")) {
		pass_on(channel__symbols);
	} else if (!strcmp(verb, "say") && argc > 2) {
		channel__write(argv[2], strlen(argv[2]));
		channel__write(" ", 1);
		pass_on(channel__write);
	} else if (!strcmp(verb, "end")) {
		channel__say("end");
		channel__end();
	} else {
		return 2;
	}
	return 0;
}
