// SPDX-License-Identifier: GPL-2.0-only
/*
 * acks.c - a TCP receiver on this machine for which the kernel copies nothing: it acknowledges and drops packets to port 7000.
 * `acks ADDRESS DEVICE MICROSECONDS`: acknowledge packets of DEVICE at this interval. It serves one connection at a time.
 *
 * For a socket, the kernel would copy each zero-copy send (ip_local_deliver_finish()). A tc program gets the packets before that.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <bpf/libbpf.h>
#include <err.h>
#include <linux/bpf.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PORT 7000
#define FIRST_SEQUENCE 1000
#define MSS_BYTES 1460
#define WINDOW_SCALE 14
#define DROP 2

/* Results of the tc program. Next sequence number and count of SYNs in host byte order; sender's port and address as in the packet. */
struct seen {
	unsigned int next, syns, address;
	unsigned short port, pad;
};

static int sock;
static unsigned int mine;

static long bpf(int command, union bpf_attr *attr)
{
	return syscall(SYS_bpf, command, attr, sizeof(*attr));
}

#define INSN(CODE, DST, SRC, OFF, IMM) { .code = (CODE), .dst_reg = (DST), .src_reg = (SRC), .off = (OFF), .imm = (IMM) }
#define LOAD(SIZE, DST, SRC, OFF) INSN(BPF_LDX | BPF_MEM | (SIZE), DST, SRC, OFF, 0)
#define STORE(SIZE, DST, OFF, SRC) INSN(BPF_STX | BPF_MEM | (SIZE), DST, SRC, OFF, 0)
#define DO(OP, DST, SRC) INSN(BPF_ALU64 | (OP) | BPF_X, DST, SRC, 0, 0)
#define DO32(OP, DST, SRC) INSN(BPF_ALU | (OP) | BPF_X, DST, SRC, 0, 0)
#define DO_WITH(OP, DST, IMM) INSN(BPF_ALU64 | (OP) | BPF_K, DST, 0, 0, IMM)
#define JUMP(OP, DST, IMM, OFF) INSN(BPF_JMP | (OP) | BPF_K, DST, 0, OFF, IMM)
#define SEEN_AT(FIELD) __builtin_offsetof(struct seen, FIELD)

/* Load a program for Ethernet, IPv4 without options, and TCP. It passes packets to other ports. */
static int load(int map)
{
	struct bpf_insn steps[] = {
		LOAD(BPF_W, 2, 1, __builtin_offsetof(struct __sk_buff, data)),
		LOAD(BPF_W, 3, 1, __builtin_offsetof(struct __sk_buff, data_end)),
		LOAD(BPF_W, 7, 1, __builtin_offsetof(struct __sk_buff, len)),
		DO(BPF_MOV, 4, 2),
		DO_WITH(BPF_ADD, 4, 54),
		INSN(BPF_JMP | BPF_JGT | BPF_X, 4, 3, 35, 0),
		LOAD(BPF_H, 5, 2, 12),
		JUMP(BPF_JNE, 5, htons(0x0800), 33),
		LOAD(BPF_B, 5, 2, 23),
		JUMP(BPF_JNE, 5, IPPROTO_TCP, 31),
		LOAD(BPF_H, 5, 2, 36),
		JUMP(BPF_JNE, 5, htons(PORT), 29),
		/* r7: the sequence number after the packet */
		LOAD(BPF_B, 0, 2, 46),
		DO_WITH(BPF_RSH, 0, 4),
		DO_WITH(BPF_LSH, 0, 2),
		DO_WITH(BPF_SUB, 7, 34),
		DO(BPF_SUB, 7, 0),
		LOAD(BPF_W, 8, 2, 38),
		INSN(BPF_ALU | BPF_END | BPF_TO_BE, 8, 0, 0, 32),
		DO32(BPF_ADD, 7, 8),
		INSN(BPF_LD | BPF_DW | BPF_IMM, 1, BPF_PSEUDO_MAP_VALUE, 0, map),
		{},
		LOAD(BPF_B, 5, 2, 47),
		JUMP(BPF_JSET, 5, TH_SYN, 7),
		/* Acknowledge earlier bytes, too, even if another CPU still handles them. */
		LOAD(BPF_W, 4, 1, SEEN_AT(next)),
		DO32(BPF_MOV, 8, 7),
		DO32(BPF_SUB, 8, 4),
		INSN(BPF_JMP32 | BPF_JSLE | BPF_K, 8, 0, 1, 0),
		STORE(BPF_W, 1, SEEN_AT(next), 7),
		INSN(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, DROP),
		INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
		/* a SYN: a new connection */
		DO_WITH(BPF_ADD, 7, 1),
		STORE(BPF_W, 1, SEEN_AT(next), 7),
		LOAD(BPF_W, 4, 2, 26),
		STORE(BPF_W, 1, SEEN_AT(address), 4),
		LOAD(BPF_H, 4, 2, 34),
		STORE(BPF_H, 1, SEEN_AT(port), 4),
		LOAD(BPF_W, 4, 1, SEEN_AT(syns)),
		DO_WITH(BPF_ADD, 4, 1),
		STORE(BPF_W, 1, SEEN_AT(syns), 4),
		INSN(BPF_JMP | BPF_JA, 0, 0, -12, 0),
		INSN(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 0),
		INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
	};
	static char log[1 << 16];
	union bpf_attr attr = { .prog_type = BPF_PROG_TYPE_SCHED_CLS, .insn_cnt = sizeof(steps) / sizeof(*steps),
				.insns = (unsigned long)steps, .license = (unsigned long)"GPL", .log_buf = (unsigned long)log,
				.log_size = sizeof(log), .log_level = 1 };
	int program = bpf(BPF_PROG_LOAD, &attr);

	if (program < 0)
		err(1, "bpf: BPF_PROG_LOAD: %s", log);
	return program;
}

/* Attach the program to a device. It goes away with the device, which the test deletes. */
static volatile struct seen *look_at(const char *device)
{
	union bpf_attr attr = { .map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = sizeof(struct seen), .max_entries = 1,
				.map_flags = BPF_F_MMAPABLE };
	int map = bpf(BPF_MAP_CREATE, &attr), error;
	void *seen;

	if (map < 0)
		err(1, "bpf: BPF_MAP_CREATE");
	seen = mmap(NULL, sysconf(_SC_PAGESIZE), PROT_READ, MAP_SHARED, map, 0);
	if (seen == MAP_FAILED)
		err(1, "mmap");
	LIBBPF_OPTS(bpf_tc_hook, arriving, .ifindex = if_nametoindex(device), .attach_point = BPF_TC_INGRESS);
	LIBBPF_OPTS(bpf_tc_opts, filter, .prog_fd = load(map));
	error = bpf_tc_hook_create(&arriving) ?: bpf_tc_attach(&arriving, &filter);
	if (error)
		errx(1, "tc: %s: %s", device, strerror(-error));
	return seen;
}

static unsigned short checksum(const void *data, int bytes, unsigned int sum)
{
	unsigned short word;

	for (int i = 0; i < bytes; i += sizeof(word)) {
		memcpy(&word, (const char *)data + i, sizeof(word));
		sum += word;
	}
	sum = (sum >> 16) + (sum & 0xffff);
	return ~(sum + (sum >> 16));
}

/* Send an acknowledgement. The kernel computes the IP checksum. */
static void answer(const volatile struct seen *seen, int is_first, unsigned int next)
{
	struct {
		struct iphdr ip;
		struct tcphdr tcp;
		unsigned char options[8];
	} __attribute__((packed)) packet = {
		.ip = { .version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_TCP, .saddr = mine, .daddr = seen->address },
		.tcp = { .source = htons(PORT), .dest = seen->port, .seq = htonl(FIRST_SEQUENCE + !is_first), .ack_seq = htonl(next),
			 .doff = is_first ? 7 : 5, .ack = 1, .syn = is_first, .window = htons(65535) },
		.options = { TCPOPT_MAXSEG, TCPOLEN_MAXSEG, MSS_BYTES >> 8, MSS_BYTES & 0xff, TCPOPT_NOP, TCPOPT_WINDOW, TCPOLEN_WINDOW,
			     WINDOW_SCALE },
	};
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = seen->address };
	int bytes = packet.tcp.doff * 4;
	struct { unsigned int from, to; unsigned short protocol, bytes; } pseudo = { mine, seen->address, htons(IPPROTO_TCP),
										     htons(bytes) };

	packet.tcp.check = checksum(&packet.tcp, bytes, (unsigned short)~checksum(&pseudo, sizeof(pseudo), 0));
	if (sendto(sock, &packet, sizeof(packet.ip) + bytes, 0, (void *)&to, sizeof(to)) < 0)
		err(1, "sendto");
}

static void tell(const volatile struct seen *seen)
{
	static unsigned int syns, told;
	unsigned int next = seen->next;

	if (syns != seen->syns || next != told)
		answer(seen, syns != seen->syns, next);
	syns = seen->syns;
	told = next;
}

int main(int argc, char **argv)
{
	const volatile struct seen *seen;
	struct timespec pause = {};

	if (argc != 4)
		errx(2, "usage: acks ADDRESS DEVICE MICROSECONDS");
	mine = inet_addr(argv[1]);
	pause.tv_nsec = atol(argv[3]) * 1000;
	sock = socket(AF_INET, SOCK_RAW, IPPROTO_RAW);
	if (sock < 0)
		err(1, "socket");
	seen = look_at(argv[2]);
	for (;;) {
		tell(seen);
		if (pause.tv_nsec)
			nanosleep(&pause, NULL);
	}
}
