// SPDX-License-Identifier: GPL-2.0-only
/*
 * bare_uring.c - sends through io_uring with as little code as possible, which shows the cost of liburing and the kernel.
 *
 * bare_uring send|zc ADDRESS PORT SIZE BYTES CONNECTIONS    one thread and one ring per connection, one request at a time
 *
 * `zc` sends with SEND_ZC from 16 buffers in turn, which share no page, and waits for the notification of the buffer that is next.
 */
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <liburing.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFERS 16u

/* Constants that the headers of liburing 2.3 lack. */
#ifndef IORING_SEND_ZC_REPORT_USAGE
#define IORING_SEND_ZC_REPORT_USAGE (1U << 3)
#endif

struct connection {
	pthread_t thread;
	int fd;
	bool zerocopy;
	size_t size;
	long long bytes;
	struct io_uring ring;
	unsigned int in_flight;
};

/* Make one call and process all completions. Return the result of the request, or -1 if it is not complete. */
static int take(struct connection *c)
{
	struct io_uring_cqe *cqe;
	unsigned int head, taken = 0;
	int result = -1, entered = io_uring_submit_and_wait(&c->ring, 1);

	if (entered < 0 && entered != -EINTR)
		errx(1, "io_uring_enter: %s", strerror(-entered));
	io_uring_for_each_cqe(&c->ring, head, cqe) {
		taken++;
		if (cqe->flags & IORING_CQE_F_NOTIF) {
			c->in_flight--;
			continue;
		}
		result = cqe->res;
		if (result <= 0)
			errx(1, "send: %s", strerror(-result));
		c->in_flight += cqe->flags & IORING_CQE_F_MORE ? 1 : 0;
	}
	io_uring_cq_advance(&c->ring, taken);
	return result;
}

static void *send_all(void *arg)
{
	struct connection *c = arg;
	const size_t apart = (c->size + 4095) & ~4095ul;
	char *messages = aligned_alloc(4096, BUFFERS * apart);
	struct io_uring_params params = {
		.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CQSIZE, .cq_entries = 4 * BUFFERS,
	};
	int err = io_uring_queue_init_params(4, &c->ring, &params), sent;
	unsigned int next = 0;

	if (err)
		errx(1, "io_uring: %s", strerror(-err));
	memset(messages, 'A', BUFFERS * apart);
	for (long long left = c->bytes; left > 0; left -= sent) {
		char *message = messages + (c->zerocopy ? next++ % BUFFERS : 0) * apart;
		struct io_uring_sqe *sqe = io_uring_get_sqe(&c->ring);

		io_uring_prep_send(sqe, c->fd, message, c->size, MSG_NOSIGNAL | MSG_WAITALL);
		if (c->zerocopy) {
			sqe->opcode = IORING_OP_SEND_ZC;
			sqe->ioprio = IORING_SEND_ZC_REPORT_USAGE;
		}
		while ((sent = take(c)) < 0)
			;
		while (c->in_flight >= BUFFERS)
			take(c);
	}
	while (c->in_flight)
		take(c);
	shutdown(c->fd, SHUT_WR);
	/* Wait until the receiver has read everything and closes the connection. */
	sent = recv(c->fd, messages, 1, 0);
	io_uring_queue_exit(&c->ring);
	free(messages);
	return NULL;
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	struct connection all[64] = {};
	int connections = argc == 7 ? atoi(argv[6]) : 0, on = 1;

	if (connections < 1 || connections > 64 || (strcmp(argv[1], "send") && strcmp(argv[1], "zc")))
		errx(2, "usage: bare_uring send|zc ADDRESS PORT SIZE BYTES CONNECTIONS");
	address.sin_port = htons(atoi(argv[3]));
	inet_pton(AF_INET, argv[2], &address.sin_addr);
	for (int i = 0; i < connections; i++) {
		struct connection *c = &all[i];

		c->fd = socket(AF_INET, SOCK_STREAM, 0);
		if (c->fd < 0 || connect(c->fd, (void *)&address, sizeof(address)))
			err(1, "connection");
		setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		c->zerocopy = !strcmp(argv[1], "zc");
		c->size = strtoul(argv[4], NULL, 10);
		c->bytes = strtoll(argv[5], NULL, 10) / connections;
	}
	for (int i = 0; i < connections; i++)
		pthread_create(&all[i].thread, NULL, send_all, &all[i]);
	for (int i = 0; i < connections; i++)
		pthread_join(all[i].thread, NULL);
	return 0;
}
