// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "channel.h"
#include "network.h"
#include "program.h"

#define USER 1000
#define SERVER_ENDS_MS 200

/* Execute the program as a user without capabilities, because root has no limit on locked memory. */
static _Noreturn void exec_as_user(char **words, int namespace_fd, int out)
{
	/*
	 * The default limit of systemd (systemd.exec(5), LimitMEMLOCK=). The kernel's own default is 64 KiB before
	 * 5.16.
	 */
	const struct rlimit locked = { 8u << 20, 8u << 20 };

	network__enter(namespace_fd);
	if (out >= 0)
		dup2(out, STDOUT_FILENO);
	setrlimit(RLIMIT_MEMLOCK, &locked);
	if (setgid(USER) || setuid(USER))
		_exit(126);
	execv(words[0], words);
	_exit(127);
}

static pid_t start(const char *name, char *line, int namespace_fd, int out)
{
	char *words[PROGRAM_WORDS_MAX + 1], *word;
	unsigned int count = 0;
	pid_t pid;

	while (count < PROGRAM_WORDS_MAX && (word = strsep(&line, " "))) {
		words[count++] = word;
		while ((word = strchr(word, PROGRAM_BLANK)))
			*word = ' ';
	}
	words[count] = NULL;
	pid = fork();
	if (pid < 0)
		channel__fail("%s: fork: %s", name, strerror(errno));
	if (!pid)
		exec_as_user(words, namespace_fd, out);
	return pid;
}

void program__start(struct program *program, const char *name, char *line, int namespace_fd)
{
	int out[2];

	program->name = name;
	if (pipe2(out, O_CLOEXEC))
		channel__fail("%s: pipe: %s", name, strerror(errno));
	program->pid = start(name, line, namespace_fd, out[1]);
	close(out[1]);
	program->from = out[0];
}

static void check(const char *name, int status)
{
	if (status)
		channel__fail("%s: exited with status %d; see its output on the console", name,
			      WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
}

pid_t program__begin(const char *name, char *line, int namespace_fd)
{
	return start(name, line, namespace_fd, -1);
}

void program__run(const char *name, char *line, int namespace_fd, pid_t server)
{
	pid_t first = program__begin(name, line, namespace_fd), ended;
	int status, first_status = -1;

	/* Orphans of the program become children of this process, which is init. */
	while ((!server || first_status < 0) && (ended = wait(&status)) > 0)
		if (ended == first)
			first_status = status;
	check(name, first_status);
	/* Give the server time to read the last bytes. A server that does not exit ends with the machine. */
	for (unsigned int i = 0; server && i < SERVER_ENDS_MS && !waitpid(server, &status, WNOHANG); i++)
		usleep(1000);
}

void program__finish(struct program *program)
{
	static char output[1 << 20];
	size_t length = 0;
	int status = -1;
	ssize_t got;

	while (length < sizeof(output) &&
	       (got = read(program->from, output + length, sizeof(output) - length)) > 0)
		length += got;
	close(program->from);
	waitpid(program->pid, &status, 0);
	check(program->name, status);
	while (length && output[length - 1] == '\n')
		length--;
	channel__write(program->name, strlen(program->name));
	channel__write(" ", 1);
	channel__write(output, length);
	channel__write("\n", 1);
}
