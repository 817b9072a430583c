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

/* As a user without capabilities: root would hide the limit on locked memory. */
static _Noreturn void become(char **words, int namespace_fd, int out)
{
	/* What systemd gives (systemd.exec(5), LimitMEMLOCK=): kernels before 5.16 begin with 64 KiB. */
	const struct rlimit locked = { 8u << 20, 8u << 20 };

	network__enter(namespace_fd);
	dup2(out, STDOUT_FILENO);
	setrlimit(RLIMIT_MEMLOCK, &locked);
	if (setgid(USER) || setuid(USER))
		_exit(126);
	execv(words[0], words);
	_exit(127);
}

void program__start(struct program *program, const char *name, char *line, int namespace_fd)
{
	char *words[PROGRAM_WORDS_MAX + 1], *word;
	unsigned int count = 0;
	int out[2];

	while (count < PROGRAM_WORDS_MAX && (word = strsep(&line, " ")))
		words[count++] = word;
	words[count] = NULL;
	program->name = name;
	if (pipe2(out, O_CLOEXEC))
		channel__fail("%s: pipe: %s", name, strerror(errno));
	program->pid = fork();
	if (program->pid < 0)
		channel__fail("%s: fork: %s", name, strerror(errno));
	if (!program->pid)
		become(words, namespace_fd, out[1]);
	close(out[1]);
	program->from = out[0];
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
	if (status)
		channel__fail("%s: ended with status %d; its words are on the console", program->name,
			      WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
	while (length && said[length - 1] == '\n')
		length--;
	channel__write(program->name, strlen(program->name));
	channel__write(" ", 1);
	channel__write(said, length);
	channel__write("\n", 1);
}
