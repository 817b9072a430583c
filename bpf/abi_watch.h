/* SPDX-License-Identifier: GPL-2.0-only */
/* abi_watch.h - the part of abi.h for watched programs. Include abi.h, not this file. */
#ifndef COPYSCOPE_ABI_WATCH_H
#define COPYSCOPE_ABI_WATCH_H

enum direction {
	DIRECTION_SEND,
	DIRECTION_RECEIVE,
	/* Part of the received bytes that was copied to the program's memory, counted packet by packet. */
	DIRECTION_COPY_OUT,
	/* Read with MSG_PEEK: copied, but still in the queue. */
	DIRECTION_PEEK,
	/* Received without a copy: pages mapped into the program's memory. */
	DIRECTION_MAPPED,
	/*
	 * Returned by calls with MSG_TRUNC, and also counted above. TCP drops these bytes without a copy; for a
	 * datagram this is its full length.
	 */
	DIRECTION_TRUNCATED,
	DIRECTION_CNT,
};

enum protocol {
	PROTOCOL_TCP,
	PROTOCOL_UDP,
	PROTOCOL_MPTCP,
	/* Unix domain sockets: streams, and datagrams or sequenced packets. */
	PROTOCOL_UNIX_STREAM,
	PROTOCOL_UNIX_DGRAM,
	/*
	 * A socket of any of these protocols in a sockmap. BPF programs (sk_msg, sk_skb) may pass its bytes directly
	 * to another socket.
	 */
	PROTOCOL_SOCKMAP,
	PROTOCOL_CNT,
};

/* Slot n counts sizes of [2^n, 2^(n+1)) bytes. Slot 0 also counts empty calls. */
#define SIZE_SLOTS 32

/* Calls and bytes of a watched program on its sockets: one cell per protocol, direction and system call. */
struct volume_cell {
	__u64 calls;
	__u64 bytes;
	__u64 zerocopy_calls;
	__u64 zerocopy_bytes;
	__u64 nodelay_calls;
	__u64 cork_calls;
	/* Sends by reference (zero-copy, sendfile, splice) that the socket copied in the call (by_reference.bpf.h). */
	__u64 copied_calls;
	__u64 copied_bytes;
	/* Part of the bytes of splice(2) that io_uring requests moved (IORING_OP_SPLICE). */
	__u64 ring_calls;
	__u64 ring_bytes;
	__u64 largest_bytes;
	__u64 sizes[SIZE_SLOTS];
};
_Static_assert(sizeof(struct volume_cell) == 88 + 8 * SIZE_SLOTS, "volume_cell");
#define VOLUME_CELLS (PROTOCOL_CNT * DIRECTION_CNT * CALL_CNT)
/* Number of volume cells; must be a power of two, for BOUNDED(). */
#define VOLUME_SLOTS 1024
_Static_assert(VOLUME_CELLS <= VOLUME_SLOTS, "VOLUME_SLOTS");

/* With WATCH_ALL: a program in a cgroup (v2), and the index of a volume cell. */
struct program_key {
	__u64 cgroup_id;
	/* Name of the process: comm of its first thread, followed by zeroes. */
	__u64 comm[WATCH_COMM / 8];
	__u32 volume_index;
	__u32 pad;
};
_Static_assert(sizeof(struct program_key) == 32, "program_key: no implicit padding, it is a key");

struct program_cell {
	__u64 calls;
	__u64 bytes;
	__u64 zerocopy_calls;
	__u64 zerocopy_bytes;
	/* Value of program_round at the last call. */
	__u64 round;
};
_Static_assert(sizeof(struct program_cell) == 40, "program_cell");
/* Most cells of programs. A program that sends and receives in one way has two. */
#define PROGRAM_CELLS_MAX 4096

/* Fields of struct task_struct whose offsets the sampler needs. */
enum task_field {
	TASK_FLAGS,
	TASK_GROUP_LEADER,
	TASK_COMM,
	TASK_FIELDS,
};

/* How a watched program reads files into its memory. */
enum file_reads {
	/* Through the page cache: a copy. */
	FILE_READS_CACHED,
	/* With O_DIRECT: no copy. */
	FILE_READS_DIRECT,
	/* Calls that may have read an unknown number of bytes. */
	FILE_READS_UNSEEN,
	FILE_READS_CNT,
};

enum file_call {
	/* read(2) and pread(2) */
	FILE_CALL_READ,
	/* readv(2), preadv(2) and preadv2(2) */
	FILE_CALL_READV,
	FILE_CALL_URING,
	/* io_submit(2) */
	FILE_CALL_AIO,
	FILE_CALL_CNT,
};

#define FILE_READS_AT(kind, call) ((kind) * FILE_CALL_CNT + (call))
/* Number of cells of file reads; must be a power of two, for BOUNDED(). */
#define FILE_READS_SLOTS 16
_Static_assert(FILE_READS_CNT * FILE_CALL_CNT <= FILE_READS_SLOTS, "FILE_READS_SLOTS");

/* Send calls that the socket refused, by call and errno. send(2) returns only errno values below 128. */
#define ERRNO_SLOTS 128
#define CALL_SLOTS 32
_Static_assert(CALL_CNT <= CALL_SLOTS, "CALL_SLOTS");

/* Bytes that a thread moved by timed calls that copy a stream. Similar sums reveal a relay. */
struct passed {
	__u64 received_bytes;
	__u64 sent_bytes;
};
_Static_assert(sizeof(struct passed) == 16, "passed");

/* Sums over threads that receive and send similar amounts (RELAYS()). */
enum relay_total {
	RELAY_THREADS,
	RELAY_RECEIVED,
	RELAY_SENT,
	RELAY_CNT,
};
/* True if the amounts differ by at most a tenth. */
#define RELAYS(received, sent) ((received) && (sent) * 10 >= (received) * 9 && (received) * 10 >= (sent) * 9)

/* Slots 0 to 15 count the values 0 to 15. Slot 16 + n counts [16 << n, 32 << n). */
#define COUNT_SLOTS 32
#define COUNTS_EXACT 16
/*
 * Maximum number of buffers inspected per message, and of messages inspected per sendmmsg(2). All buffers are counted.
 */
#define BUFFERS_LOOKED 16
#define MESSAGES_LOOKED 64
#define CACHE_LINE_BYTES 64
/*
 * A buffer below a page is small. From about 10 KB on, zero-copy is cheaper than a copy
 * (networking/msg_zerocopy.rst).
 */
#define SMALL_BUFFER_BYTES 4096
#define LARGE_BUFFER_BYTES 10240

/* Messages and buffers that a watched program passes to its send calls: one cell per protocol and system call. */
struct shape_cell {
	/* Number of messages with readable arguments, and of messages with unreadable arguments. */
	__u64 messages;
	__u64 unreadable;
	/*
	 * Number of messages with a first buffer at the address of the first buffer of the thread's previous message.
	 */
	__u64 repeated;
	__u64 buffers;
	/* Buffers that were inspected, those aligned to a page, and those aligned only to a cache line. */
	__u64 looked;
	__u64 page_aligned;
	__u64 line_aligned;
	/* Messages with MSG_ZEROCOPY that have both a small and a large buffer. */
	__u64 mixed;
	/* TCP sends, and the iterations of the tcp_sendmsg_locked() loop that they took. */
	__u64 sends;
	__u64 rounds;
	__u64 buffers_per_message[COUNT_SLOTS];
	__u64 rounds_per_send[COUNT_SLOTS];
};
_Static_assert(sizeof(struct shape_cell) == 80 + 16 * COUNT_SLOTS, "shape_cell");
#define SHAPE_CELLS (PROTOCOL_CNT * CALL_CNT)
#define SHAPE_SLOTS 256
_Static_assert(SHAPE_CELLS <= SHAPE_SLOTS, "SHAPE_SLOTS");

/* State of a thread that sends. */
struct sending_task {
	__u64 last_address;
	__u32 rounds;
	__u32 pad;
};
_Static_assert(sizeof(struct sending_task) == 16, "sending_task");

/* Packets that the program itself passed to a device, before the device segments them. */
struct packet_cell {
	__u64 packets;
	__u64 bytes;
	__u64 segments;
	__u64 sizes[SIZE_SLOTS];
};
_Static_assert(sizeof(struct packet_cell) == 24 + 8 * SIZE_SLOTS, "packet_cell");

/* Bytes that one TCP socket moved, to be compared with TCP's own count (TCP_INFO). */
struct socket_cell {
	__u64 inode;
	__u64 sent_bytes;
	__u64 received_bytes;
};
_Static_assert(sizeof(struct socket_cell) == 24, "socket_cell");
/* Maximum number of open sockets that have moved data (collector --sockets-max). */
#define SOCKETS_MAX 262144

/* Peer of a watched program, and the device on the way to the peer (empty: unknown). */
struct peer {
	__u32 netns;
	__u32 family;
	__u8 address[16];
	char device[16];
};
_Static_assert(sizeof(struct peer) == 40, "peer");
#define PEERS_MAX 64

/* Zero-copy sends of one socket, as read from its error queue without dequeuing anything. */
struct zerocopy_socket {
	/*
	 * Numbers of the first send whose completion we have not seen (next_id), that has not returned (sent_id),
	 * that is not both returned and completed (back_id), and whose notification the program has not read
	 * (read_id).
	 */
	__u32 next_id;
	__u32 sent_id;
	__u32 back_id;
	__u32 read_id;
	__u32 protocol;
	__u32 pad;
	/* Address of the socket, as an integer, because the verifier allows no arithmetic on the pointer. */
	__u64 socket;
	/* Bytes sent since the first send that we saw, and the number of these bytes that the kernel has released. */
	__u64 sent_bytes;
	__u64 back_bytes;
	/* Time of the last notification that a task slept waiting for. */
	__u64 noticed_ns;
};
_Static_assert(sizeof(struct zerocopy_socket) == 56, "zerocopy_socket");

/* A zero-copy send, until another send overwrites the entry. */
struct zerocopy_buffer {
	__u64 socket;
	__u64 returned_ns;
	/* Time of the notification; 0 while the kernel still uses the memory. */
	__u64 noticed_ns;
	/* Value of the socket's sent_bytes after this send. */
	__u64 bytes;
	__u32 id;
	__u32 pad;
};
_Static_assert(sizeof(struct zerocopy_buffer) == 40, "zerocopy_buffer");
/* Number of zero-copy sends that are remembered; must be a power of two. */
#define BUFFERS_MAX 32768

/* A thread that sends with MSG_ZEROCOPY. Records whether it sleeps until a notification arrives. */
struct waiting_task {
	/*
	 * Time of its last send or of the last notification that it read, and its number of voluntary context
	 * switches by then.
	 */
	__u64 since_ns;
	__u64 switches;
	/* Waits since the last send of the thread. These waits count once the thread sends again. */
	__u64 waits;
	__u64 waited_ns;
	/*
	 * Nonzero if the thread may have slept for something else: it has received data since, or its socket was
	 * full.
	 */
	__u64 has_a_reason;
};
_Static_assert(sizeof(struct waiting_task) == 40, "waiting_task");
/*
 * A thread that reads a notification later than this was woken by something else, unless it had waited even longer.
 */
#define WAKE_UP_NS 1000000

/* Memory of zero-copy sends that the kernel still uses: current and maximum number of buffers and bytes. */
enum flight {
	FLIGHT_BUFFERS,
	FLIGHT_BYTES,
	FLIGHT_MOST_BUFFERS,
	FLIGHT_MOST_BYTES,
	FLIGHT_CNT,
};
/* Number of groups, one per protocol; must be a power of two. */
#define FLIGHT_SLOTS (8 * FLIGHT_CNT)
_Static_assert(PROTOCOL_CNT <= 8, "FLIGHT_SLOTS");

/* Zero-copy sends of one protocol. */
struct buffer_cell {
	__u64 sends;
	__u64 given_back;
	__u64 before_return;
	__u64 read;
	/* Sends still in use by the kernel when their socket was closed. */
	__u64 closed;
	/*
	 * Calls with MSG_ZEROCOPY that failed with ENOBUFS or EAGAIN, and calls without SO_ZEROCOPY, which ignore the
	 * flag.
	 */
	__u64 enobufs;
	__u64 eagain;
	__u64 without_option;
	/*
	 * Calls that read notifications; waits for a notification after which the thread sent again, and their total
	 * time.
	 */
	__u64 readings;
	__u64 waits;
	__u64 waited_ns;
	/*
	 * Times from the return of a send to its notification, and from there until the program reads the
	 * notification.
	 */
	__u64 latency[HIST_SLOTS];
	__u64 reading[HIST_SLOTS];
};
_Static_assert(sizeof(struct buffer_cell) == 88 + 16 * HIST_SLOTS, "buffer_cell");

/* Totals of a watched program that do not count bytes. */
enum watch_total {
	WATCH_FORKS,
	/* New threads of watched processes, including their first threads. */
	WATCH_BIRTHS,
	WATCH_EXITS,
	/* CPU time of the processes that have exited, accurate to less than a tick. */
	WATCH_ENDED_NS,
	WATCH_COMPLETIONS,
	WATCH_COPIED,
	WATCH_NOTIFICATIONS,
	/* Completions that the program dequeued before we could read them. */
	WATCH_UNSEEN,
	/* io_uring notifications of programs that did not request the copy report (IORING_SEND_ZC_REPORT_USAGE). */
	WATCH_UNTOLD,
	/* io_uring zero-copy sends from unregistered memory, which is pinned for each send. */
	WATCH_UNREGISTERED,
	WATCH_TOTAL_CNT,
};

#endif
