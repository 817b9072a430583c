// SPDX-License-Identifier: GPL-2.0-only
/*
 * bare.c - sends and receives with as little code as possible, which shows the cost of the socket API itself.
 *
 * bare recv PORT BUFFER CONNECTIONS    accept, read until the end, print bytes and the time since the first byte
 * bare send ADDRESS PORT SIZE BYTES CONNECTIONS    send() in a loop, one thread per connection
 */
#include <arpa/inet.h>
#include <err.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct connection {
	pthread_t thread;
	int fd;
	size_t size;
	long long bytes, first_ns, last_ns;
};

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void *send_all(void *arg)
{
	struct connection *c = arg;
	char *message = malloc(c->size);
	ssize_t sent;

	memset(message, 'A', c->size);
	for (long long left = c->bytes; left > 0; left -= sent) {
		sent = send(c->fd, message, c->size, 0);
		if (sent < 0)
			err(1, "send");
	}
	free(message);
	shutdown(c->fd, SHUT_WR);
	/* Wait until the receiver has read everything and closes the connection. */
	return recv(c->fd, &sent, 1, 0) ? c : NULL;
}

static void *receive_all(void *arg)
{
	struct connection *c = arg;
	char *buffer = malloc(c->size);
	ssize_t got;

	while ((got = recv(c->fd, buffer, c->size, 0)) > 0) {
		if (!c->bytes)
			c->first_ns = now_ns();
		c->bytes += got;
	}
	if (got < 0)
		err(1, "recv");
	c->last_ns = now_ns();
	free(buffer);
	close(c->fd);
	return NULL;
}

int main(int argc, char **argv)
{
	int sending = argc == 7 && !strcmp(argv[1], "send"), on = 1, listener = -1;
	struct sockaddr_in address = { .sin_family = AF_INET };
	struct connection all[64] = {};
	int connections = argc > 4 ? atoi(argv[argc - 1]) : 0;
	long long bytes = 0, first_ns = 0, last_ns = 0;

	if ((!sending && (argc != 5 || strcmp(argv[1], "recv"))) || connections < 1 || connections > 64)
		errx(2, "usage: bare recv PORT BUFFER CONNECTIONS | bare send ADDRESS PORT SIZE BYTES CONNECTIONS");
	address.sin_port = htons(atoi(argv[sending ? 3 : 2]));
	if (sending) {
		inet_pton(AF_INET, argv[2], &address.sin_addr);
	} else {
		listener = socket(AF_INET, SOCK_STREAM, 0);
		setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
		if (bind(listener, (void *)&address, sizeof(address)) || listen(listener, connections))
			err(1, "listen");
		fprintf(stderr, "listening\n");
	}
	for (int i = 0; i < connections; i++) {
		struct connection *c = &all[i];

		c->fd = sending ? socket(AF_INET, SOCK_STREAM, 0) : accept(listener, NULL, NULL);
		if (c->fd < 0 || (sending && connect(c->fd, (void *)&address, sizeof(address))))
			err(1, "connection");
		setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		c->size = strtoul(argv[sending ? 4 : 3], NULL, 10);
		c->bytes = sending ? strtoll(argv[5], NULL, 10) / connections : 0;
	}
	for (int i = 0; i < connections; i++)
		pthread_create(&all[i].thread, NULL, sending ? send_all : receive_all, &all[i]);
	for (int i = 0; i < connections; i++) {
		struct connection *c = &all[i];

		pthread_join(c->thread, NULL);
		bytes += c->bytes;
		first_ns = !first_ns || c->first_ns < first_ns ? c->first_ns : first_ns;
		last_ns = c->last_ns > last_ns ? c->last_ns : last_ns;
	}
	printf("{\"bytes\": %lld, \"receiving_ns\": %lld}\n", bytes, last_ns - first_ns);
	return 0;
}
