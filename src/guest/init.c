// SPDX-License-Identifier: GPL-2.0-only
/*
 * The init process of a simulated machine. It runs the lines of /job, prints the results, and turns the machine off.
 * No other service runs, so that nothing else is measured.
 *
 *  kernel-symbols              write every function of this kernel to the port for symbols
 *  module NAME                 load /modules/NAME.ko and write its functions
 *  network KIND [mtu=N ...]    set up the path between sender and receiver (network.h)
 *  measure NAME PORT           start a measurement, whose two programs follow
 *  recv WORDS...               its receiver (the listening sender follows in the file, but is started first)
 *  send WORDS...               its sender
 *  server WORDS...             a program of the user that the command needs, started before it
 *  command WORDS...            a program of the user, measured from the first byte that it sends to its end
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

#define LISTEN_TRIES 5000	/* one millisecond each */
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

/*
 * Return true if a TCP socket listens on the port (0: any). In /proc/net/tcp (proc(5)) the second word is
 * ADDRESS:PORT and the fourth is the state; 0A means listening.
 */
static int listens(unsigned int port)
{
	FILE *sockets = fopen("/proc/net/tcp", "r");
	unsigned int found_port, state;
	char line[512];
	int is_listening = 0;

	while (sockets && !is_listening && fgets(line, sizeof(line), sockets))
		is_listening = sscanf(line, " %*[^:]: %*[^:]:%x %*s %x", &found_port, &state) == 2 &&
			(!port || found_port == port) && state == 10;
	if (sockets)
		fclose(sockets);
	return is_listening;
}

static void measure(struct job *job, char *send)
{
	struct program sender, receiver;
	unsigned int tries = 0;

	program__start(&sender, "sender", send, job->network.sender_fd);
	while (!listens(job->port)) {
		if (++tries > LISTEN_TRIES)
			channel__fail("sender: it does not listen on port %u; see its output on the console",
				      job->port);
		usleep(1000);
	}
	program__start(&receiver, "receiver", job->receive, job->network.receiver_fd);
	program__finish(&sender);
	program__finish(&receiver);
}

/*
 * Start the user's server. It gets one second to listen on TCP; afterwards the server is assumed to use another
 * protocol.
 */
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

static void run_line(struct job *job, char *line)
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
		channel__fail("job: %s: unknown command", verb);
	}
}

int main(void)
{
	struct job job = { 0 };
	char line[4096];
	FILE *job_file;
	int err = channel__open();

	/* The reason can only go to the console, because the channel does not work. */
	if (err) {
		fprintf(stderr, "init: ioperm: %s\n", strerror(-err));
		channel__end();
	}
	prepare_machine();
	job_file = fopen("/job", "r");
	if (!job_file)
		channel__fail("/job: %s", strerror(errno));
	while (fgets(line, sizeof(line), job_file)) {
		line[strcspn(line, "\n")] = '\0';
		run_line(&job, line);
	}
	channel__say("end");
	channel__end();
}
