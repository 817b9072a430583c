// SPDX-License-Identifier: GPL-2.0-only
/*
 * talks.c - stands for a program of a user: a thread sends COUNT messages of SIZE bytes over lo to another thread, and
 * copies each into its buffer before, with memcpy() of the C library. It prints the number of received bytes.
 *
 * talks COUNT SIZE           sender and receiver in one process
 * talks serve PORT           the receiver as a separate process, which does not end
 * talks COUNT SIZE PORT      the sender, for `talks serve`
 */
#include <arpa/inet.h>
#include <err.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int listener;
static size_t size = 32768;

static void *read_all(void *arrived)
{
	int fd = accept(listener, NULL, NULL);
	char *buffer = malloc(size);
	ssize_t got;

	if (fd < 0 || !buffer)
		err(1, "accept");
	while ((got = read(fd, buffer, size)) > 0)
		*(size_t *)arrived += got;
	return NULL;
}

int main(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	long count = argc > 2 ? atol(argv[1]) : 0;
	socklen_t length = sizeof(to);
	char *source, *message;
	size_t arrived = 0;
	pthread_t reader;
	int fd;

	if (argc > 2 && !strcmp(argv[1], "serve")) {
		to.sin_port = htons(atoi(argv[2]));
		listener = socket(AF_INET, SOCK_STREAM, 0);
		if (bind(listener, (void *)&to, sizeof(to)) || listen(listener, 1))
			err(1, "serve");
		read_all(&arrived);
		for (;;)
			pause();
	}
	if (!count)
		return 0;
	size = atol(argv[2]);
	if (argc > 3)
		to.sin_port = htons(atoi(argv[3]));
	source = malloc(size);
	message = malloc(size);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	if (!source || !message)
		err(1, "memory");
	if (argc <= 3 && (bind(listener, (void *)&to, sizeof(to)) || listen(listener, 1) ||
			  getsockname(listener, (void *)&to, &length) ||
			  pthread_create(&reader, NULL, read_all, &arrived)))
		err(1, "listen");
	if (connect(fd, (void *)&to, sizeof(to)))
		err(1, "connect");
	memset(source, 'x', size);
	for (long i = 0; i < count; i++) {
		memcpy(message, source, size);
		for (size_t done = 0; done < size;) {
			ssize_t sent = write(fd, message + done, size - done);

			if (sent < 0)
				err(1, "write");
			done += sent;
		}
	}
	close(fd);
	if (argc <= 3)
		pthread_join(reader, NULL);
	printf("%zu\n", arrived);
	return 0;
}
