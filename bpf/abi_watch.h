/* SPDX-License-Identifier: GPL-2.0 */
/* abi_watch.h - the part of abi.h that is about programs that we did not write; include that one. */
#ifndef COPYSCOPE_ABI_WATCH_H
#define COPYSCOPE_ABI_WATCH_H

enum direction {
	DIRECTION_SEND,
	DIRECTION_RECEIVE,
	/* What of the received was copied to the program's memory, packet by packet. */
	DIRECTION_COPY_OUT,
	/* Looked at with MSG_PEEK: copied, and still in the queue. */
	DIRECTION_PEEK,
	/* Received without a copy: pages that were mapped into its memory. */
	DIRECTION_MAPPED,
	/* Returned by calls with MSG_TRUNC, counted above as well: TCP drops it without a copy; of a datagram it is the whole length. */
	DIRECTION_TRUNCATED,
	DIRECTION_CNT,
};

enum protocol {
	PROTOCOL_TCP,
	PROTOCOL_UDP,
	PROTOCOL_MPTCP,
	/* The local domain: streams; datagrams and packets. */
	PROTOCOL_UNIX_STREAM,
	PROTOCOL_UNIX_DGRAM,
	/* Of any of these, in a sockmap: BPF programs may pass its bytes on to another socket, past its protocol (sk_msg, sk_skb). */
	PROTOCOL_SOCKMAP,
	PROTOCOL_CNT,
};

/* Slot n holds sizes of [2^n, 2^(n+1)) bytes; slot 0 holds empty calls as well. */
#define SIZE_SLOTS 32

/* What a watched program moved through its sockets: one per protocol, direction and system call. */
struct volume_cell {
	__u64 calls;
	__u64 bytes;
	__u64 zerocopy_calls;
	__u64 zerocopy_bytes;
	__u64 nodelay_calls;
	__u64 cork_calls;
	__u64 largest_bytes;
	__u64 sizes[SIZE_SLOTS];
};
_Static_assert(sizeof(struct volume_cell) == 56 + 8 * SIZE_SLOTS, "volume_cell");
#define VOLUME_CELLS (PROTOCOL_CNT * DIRECTION_CNT * CALL_CNT)
/* A power of two, that an index can be cut to (BOUNDED). */
#define VOLUME_SLOTS 1024
_Static_assert(VOLUME_CELLS <= VOLUME_SLOTS, "VOLUME_SLOTS");

/* What a watched program read out of files into its memory. */
enum file_reads {
	/* Through the page cache: a copy. */
	FILE_READS_CACHED,
	/* With O_DIRECT: none. */
	FILE_READS_DIRECT,
	/* Calls that may have read, and do not tell how much. */
	FILE_READS_UNSEEN,
	FILE_READS_CNT,
};

enum file_call {
	/* And pread(2). */
	FILE_CALL_READ,
	/* And preadv(2), preadv2(2). */
	FILE_CALL_READV,
	FILE_CALL_URING,
	/* io_submit(2). */
	FILE_CALL_AIO,
	FILE_CALL_CNT,
};

#define FILE_READS_AT(kind, call) ((kind) * FILE_CALL_CNT + (call))
/* A power of two, that an index can be cut to (BOUNDED). */
#define FILE_READS_SLOTS 16
_Static_assert(FILE_READS_CNT * FILE_CALL_CNT <= FILE_READS_SLOTS, "FILE_READS_SLOTS");

/* Send calls that the socket refused, by call and errno: those of send(2) are below 128. */
#define ERRNO_SLOTS 128
#define CALL_SLOTS 32
_Static_assert(CALL_CNT <= CALL_SLOTS, "CALL_SLOTS");

/* What a thread moved by timed calls that copy a stream: does it pass on what it receives? */
struct passed {
	__u64 received_bytes;
	__u64 sent_bytes;
};
_Static_assert(sizeof(struct passed) == 16, "passed");

/* Threads that receive and send like amounts (RELAYS()). */
enum relay_total {
	RELAY_THREADS,
	RELAY_RECEIVED,
	RELAY_SENT,
	RELAY_CNT,
};
/* But for a tenth. */
#define RELAYS(received, sent) ((received) && (sent) * 10 >= (received) * 9 && (received) * 10 >= (sent) * 9)

/* Slots 0 to 15 hold the counts 0 to 15, slot 16 + n holds [16 << n, 32 << n). */
#define COUNT_SLOTS 32
#define COUNTS_EXACT 16
/* Of one message so many buffers are looked at, of one sendmmsg(2) so many messages; all buffers are counted. */
#define BUFFERS_LOOKED 16
#define MESSAGES_LOOKED 64
#define CACHE_LINE_BYTES 64
/* A buffer below a page is small; from about 10 KB on zero-copy is cheaper than a copy (networking/msg_zerocopy.rst). */
#define SMALL_BUFFER_BYTES 4096
#define LARGE_BUFFER_BYTES 10240

/* How a watched program hands over what it sends: one per protocol and system call. */
struct shape_cell {
	/* Messages whose arguments were read, and those of which that failed. */
	__u64 messages;
	__u64 unreadable;
	/* Messages that begin where the message did that was looked at before in the same thread. */
	__u64 repeated;
	__u64 buffers;
	/* Buffers that were looked at, those of them that begin at a page, and the others that begin at a cache line. */
	__u64 looked;
	__u64 page_aligned;
	__u64 line_aligned;
	/* Messages with MSG_ZEROCOPY that have a small buffer and a large one. */
	__u64 mixed;
	/* How often TCP went round its loop, for how many sends. */
	__u64 sends;
	__u64 rounds;
	__u64 buffers_per_message[COUNT_SLOTS];
	__u64 rounds_per_send[COUNT_SLOTS];
};
_Static_assert(sizeof(struct shape_cell) == 80 + 16 * COUNT_SLOTS, "shape_cell");
#define SHAPE_CELLS (PROTOCOL_CNT * CALL_CNT)
#define SHAPE_SLOTS 128
_Static_assert(SHAPE_CELLS <= SHAPE_SLOTS, "SHAPE_SLOTS");

/* What is remembered of a thread that sends. */
struct sending_task {
	__u64 last_address;
	__u32 rounds;
	__u32 pad;
};
_Static_assert(sizeof(struct sending_task) == 16, "sending_task");

/* Packets that the program itself handed to a device, before the device cuts them. */
struct packet_cell {
	__u64 packets;
	__u64 bytes;
	__u64 segments;
	__u64 sizes[SIZE_SLOTS];
};
_Static_assert(sizeof(struct packet_cell) == 24 + 8 * SIZE_SLOTS, "packet_cell");

/* What one TCP socket moved: to be compared with what TCP itself says of it (TCP_INFO). */
struct socket_cell {
	__u64 inode;
	__u64 sent_bytes;
	__u64 received_bytes;
};
_Static_assert(sizeof(struct socket_cell) == 24, "socket_cell");
/* Open at once, of those that moved anything (collector --sockets-max). */
#define SOCKETS_MAX 262144

/* Whom a watched program was connected to, and through which device (empty: not known). */
struct peer {
	__u32 netns;
	__u32 family;
	__u8 address[16];
	char device[16];
};
_Static_assert(sizeof(struct peer) == 40, "peer");
#define PEERS_MAX 64

/* What became of the zero-copy sends of one socket, read from its error queue without taking anything off. */
struct zerocopy_socket {
	/*
	 * The first send whose completion has not been seen, that has not returned, that is not given back (both), whose notice is
	 * not read.
	 */
	__u32 next_id;
	__u32 sent_id;
	__u32 back_id;
	__u32 read_id;
	__u32 protocol;
	__u32 pad;
	/* Its address: as a number to the verifier, which allows no arithmetic on the pointer. */
	__u64 socket;
	/* Since its first that was seen; and what of it was given back. */
	__u64 sent_bytes;
	__u64 back_bytes;
	/* When its last notice came that somebody slept for. */
	__u64 noticed_ns;
};
_Static_assert(sizeof(struct zerocopy_socket) == 56, "zerocopy_socket");

/* One zero-copy send, until another comes to its place. */
struct zerocopy_buffer {
	__u64 socket;
	__u64 returned_ns;
	/* 0: the kernel has not given it back. */
	__u64 noticed_ns;
	/* What its socket had sent with it. */
	__u64 bytes;
	__u32 id;
	__u32 pad;
};
_Static_assert(sizeof(struct zerocopy_buffer) == 40, "zerocopy_buffer");
/* A power of two. */
#define BUFFERS_MAX 32768

/* A thread that sends with MSG_ZEROCOPY: whether it sleeps until a notice comes. */
struct waiting_task {
	/* When it last sent, or read a notice, and how often it had gone to sleep by then. */
	__u64 since_ns;
	__u64 switches;
	/* Waits since its last send: they count when it sends on. */
	__u64 waits;
	__u64 waited_ns;
	/* To sleep, other than a notice: it has received something since, or its socket has no room. */
	__u64 has_a_reason;
};
_Static_assert(sizeof(struct waiting_task) == 40, "waiting_task");
/* A thread that reads a notice later than this was not woken by it, if it had not waited longer for it. */
#define WAKE_UP_NS 1000000

/* What is with the kernel: now, and at most at once. */
enum flight {
	FLIGHT_BUFFERS,
	FLIGHT_BYTES,
	FLIGHT_MOST_BUFFERS,
	FLIGHT_MOST_BYTES,
	FLIGHT_CNT,
};
/* By protocol; a power of two. */
#define FLIGHT_SLOTS (8 * FLIGHT_CNT)
_Static_assert(PROTOCOL_CNT <= 8, "FLIGHT_SLOTS");

/* Zero-copy sends of one protocol. */
struct buffer_cell {
	__u64 sends;
	__u64 given_back;
	__u64 before_return;
	__u64 read;
	/* With the kernel yet when their socket was closed. */
	__u64 closed;
	/* With the flag: ENOBUFS, EAGAIN; and without SO_ZEROCOPY, where it means nothing. */
	__u64 enobufs;
	__u64 eagain;
	__u64 without_option;
	/* Calls that took a notice; waits for one, after which the thread sent on. */
	__u64 readings;
	__u64 waits;
	__u64 waited_ns;
	/* From the return of the send to the notice, and from there to its reading. */
	__u64 latency[HIST_SLOTS];
	__u64 reading[HIST_SLOTS];
};
_Static_assert(sizeof(struct buffer_cell) == 88 + 16 * HIST_SLOTS, "buffer_cell");

/* Totals of a watched program that are no bytes. */
enum watch_total {
	WATCH_FORKS,
	/* Threads of watched processes, first threads too, that were made. */
	WATCH_BIRTHS,
	WATCH_EXITS,
	/* CPU time of the processes that have ended, each to its end but for less than a tick. */
	WATCH_ENDED_NS,
	WATCH_COMPLETIONS,
	WATCH_COPIED,
	WATCH_NOTIFICATIONS,
	/* Completions that the program had taken off the queue before they could be read. */
	WATCH_UNSEEN,
	/* Notifications of io_uring whose program did not ask whether the send was copied. */
	WATCH_UNTOLD,
	/* Zero-copy sends of io_uring from memory that is not registered, and is pinned for each. */
	WATCH_UNREGISTERED,
	WATCH_TOTAL_CNT,
};

#endif
