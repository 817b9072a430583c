// SPDX-License-Identifier: GPL-2.0
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

/* As a user without capabilities: root would hide the limit on locked memory. */
static _Noreturn void become(char **words, int namespace_fd, int out)
{
	/* What systemd gives (systemd.exec(5), LimitMEMLOCK=): kernels before 5.16 begin with 64 KiB. */
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
		become(words, namespace_fd, out);
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
		channel__fail("%s: ended with status %d; its words are on the console", name,
			      WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
}

pid_t program__begin(const char *name, char *line, int namespace_fd)
{
	return start(name, line, namespace_fd, -1);
}

void program__run(const char *name, char *line, int namespace_fd, pid_t server)
{
	pid_t first = program__begin(name, line, namespace_fd), ended;
	int status, of_first = -1;

	/* Whatever it leaves behind is a child of the first program of a machine. */
	while ((!server || of_first < 0) && (ended = wait(&status)) > 0)
		if (ended == first)
			of_first = status;
	check(name, of_first);
	/* What was sent last is read yet. It ends with the machine otherwise. */
	for (unsigned int i = 0; server && i < SERVER_ENDS_MS && !waitpid(server, &status, WNOHANG); i++)
		usleep(1000);
}

void program__finish(struct program *program)
{
	static char said[1 << 20];
	size_t length = 0;
	int status = -1;
	ssize_t got;

	while (length < sizeof(said) &&
	       (got = read(program->from, said + length, sizeof(said) - length)) > 0)
		length += got;
	close(program->from);
	waitpid(program->pid, &status, 0);
	check(program->name, status);
	while (length && said[length - 1] == '\n')
		length--;
	channel__write(program->name, strlen(program->name));
	channel__write(" ", 1);
	channel__write(said, length);
	channel__write("\n", 1);
}
