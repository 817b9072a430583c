// SPDX-License-Identifier: GPL-2.0
/*
 * The first and only service program of a simulated machine: does what /job says, line by line, says what came of
 * it, and turns the machine off. Nothing else runs in it, so that nothing else is in what is measured.
 *
 *   kernel-symbols              every function of this kernel, to the port for symbols
 *   module NAME                 load /modules/NAME.ko; where its functions are
 *   network KIND [mtu=N ...]    the path between the two sides (network.h)
 *   measure NAME PORT           a measurement begins; its two programs follow
 *   recv WORDS...               its receiver (the sender that listens comes after it in the file, and is started first)
 *   send WORDS...               its sender
 *   server WORDS...             a program of the user's that the command needs, and that is started before it
 *   command WORDS...            a program of the user's, from the first byte that it sends to its end
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "channel.h"
#include "network.h"
#include "program.h"
#include "symbols.h"
#include "../traffic/marker.h"

#define LISTEN_TRIES 5000	/* of a millisecond each */
#define SERVER_BEGINS_MS 1000

struct job {
	struct network network;
	char receive[4096], server[4096];
	unsigned int port;
};

static void prepare_machine(void)
{
	struct utsname names;
	char line[4096];
	FILE *cpu;

	mount("proc", "/proc", "proc", 0, NULL);
	mount("sys", "/sys", "sysfs", 0, NULL);
	mount("tmp", "/tmp", "tmpfs", 0, NULL);
	chmod("/tmp", 01777);
	uname(&names);
	channel__say("booted %s", names.release);
	cpu = fopen("/proc/cpuinfo", "r");
	while (cpu && fgets(line, sizeof(line), cpu))
		if (!strncmp(line, "flags", 5)) {
			channel__say("cpu %s %s", strstr(line, " erms") ? "erms" : "-",
				     strstr(line, " fsrm") ? "fsrm" : "-");
			break;
		}
	if (cpu)
		fclose(cpu);
}

static void load_module(const char *name)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "/modules/%s.ko", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || syscall(SYS_finit_module, fd, "", 0))
		channel__fail("module %s: %s", name, strerror(errno));
	close(fd);
	symbols__write_module(name);
}

/* proc(5): the second word is ADDRESS:PORT, the fourth the state; 0A listens. Port 0: any. */
static int listens(unsigned int port)
{
	FILE *all = fopen("/proc/net/tcp", "r");
	unsigned int found_port, state;
	char line[512];
	int found = 0;

	while (all && !found && fgets(line, sizeof(line), all))
		found = sscanf(line, " %*[^:]: %*[^:]:%x %*s %x", &found_port, &state) == 2 &&
			(!port || found_port == port) && state == 10;
	if (all)
		fclose(all);
	return found;
}

static void measure(struct job *job, char *send)
{
	struct program sender, receiver;
	unsigned int tries = 0;

	program__start(&sender, "sender", send, job->network.sender_fd);
	while (!listens(job->port)) {
		if (++tries > LISTEN_TRIES)
			channel__fail("sender: it does not listen on port %u; its words are on the console",
				      job->port);
		usleep(1000);
	}
	program__start(&receiver, "receiver", job->receive, job->network.receiver_fd);
	program__finish(&sender);
	program__finish(&receiver);
}

/* A server of the user's that does not listen on TCP may do so otherwise: it has had a second then. */
static pid_t begin_server(struct job *job)
{
	pid_t server;

	if (!job->server[0])
		return 0;
	server = program__begin("server", job->server, job->network.sender_fd);
	for (unsigned int i = 0; i < SERVER_BEGINS_MS && !listens(0); i++)
		usleep(1000);
	return server;
}

static void run_command(struct job *job, char *words)
{
	pid_t server;

	symbols__write_file("/command.symbols");
	channel__say("measure command");
	marker__execute(MARKER_WARM);
	marker__execute(MARKER_AWAIT);
	server = begin_server(job);
	program__run("command", words, job->network.sender_fd, server);
	marker__execute(MARKER_STOP);
}

static void obey(struct job *job, char *line)
{
	char *rest = line;
	const char *verb = strsep(&rest, " ");

	if (!rest)
		rest = line + strlen(line);
	if (!strcmp(verb, "kernel-symbols")) {
		symbols__write_kernel();
	} else if (!strcmp(verb, "module")) {
		load_module(rest);
	} else if (!strcmp(verb, "network")) {
		const char *kind = strsep(&rest, " ");

		network__make(&job->network, kind, rest ? rest : "");
	} else if (!strcmp(verb, "measure")) {
		const char *name = strsep(&rest, " ");

		job->port = rest ? atoi(rest) : 0;
		channel__say("measure %s", name);
	} else if (!strcmp(verb, "recv")) {
		snprintf(job->receive, sizeof(job->receive), "%s", rest);
	} else if (!strcmp(verb, "send")) {
		measure(job, rest);
	} else if (!strcmp(verb, "server")) {
		snprintf(job->server, sizeof(job->server), "%s", rest);
	} else if (!strcmp(verb, "command")) {
		run_command(job, rest);
	} else {
		channel__fail("job: %s: not known to this guest", verb);
	}
}

int main(void)
{
	struct job job = { 0 };
	char line[4096];
	FILE *orders;
	int err = channel__open();

	/* Without the channel the reason could not be told. */
	if (err) {
		fprintf(stderr, "init: ioperm: %s\n", strerror(-err));
		channel__end();
	}
	prepare_machine();
	orders = fopen("/job", "r");
	if (!orders)
		channel__fail("/job: %s", strerror(errno));
	while (fgets(line, sizeof(line), orders)) {
		line[strcspn(line, "\n")] = '\0';
		obey(&job, line);
	}
	channel__say("end");
	channel__end();
}
