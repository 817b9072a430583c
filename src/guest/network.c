// SPDX-License-Identifier: GPL-2.0-only
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/ethtool.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "channel.h"
#include "network.h"

#define SENDER_ADDRESS "10.99.0.1"
#define RECEIVER_ADDRESS "10.99.0.2"
#define CARRIER_TRIES 3000	/* one millisecond each */

/* A request to rtnetlink(7), with room for its attributes. */
struct request {
	struct nlmsghdr head;
	struct ifinfomsg link;
	char attributes[512];
};

static struct request request_for(unsigned int type, unsigned int flags, int index)
{
	return (struct request){
		.head = {
			.nlmsg_len = NLMSG_LENGTH(sizeof(struct ifinfomsg)),
			.nlmsg_type = type,
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags,
		},
		.link = { .ifi_index = index },
	};
}

static void *put(struct request *request, int type, const void *data, size_t length)
{
	struct rtattr *attribute = (void *)((char *)request + NLMSG_ALIGN(request->head.nlmsg_len));

	attribute->rta_type = type;
	attribute->rta_len = RTA_LENGTH(length);
	if (length)
		memcpy(RTA_DATA(attribute), data, length);
	request->head.nlmsg_len = NLMSG_ALIGN(request->head.nlmsg_len) + RTA_ALIGN(attribute->rta_len);
	return attribute;
}

static void close_nest(struct request *request, struct rtattr *nest)
{
	nest->rta_len = (char *)request + request->head.nlmsg_len - (char *)nest;
}

static int send_request(struct request *request)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	char answer[1024];
	const struct nlmsghdr *head = (void *)answer;
	ssize_t result = -1;

	if (fd >= 0 && send(fd, request, request->head.nlmsg_len, 0) >= 0)
		result = recv(fd, answer, sizeof(answer), 0);
	if (result < (ssize_t)NLMSG_LENGTH(sizeof(struct nlmsgerr)))
		result = -EIO;
	else
		result = ((const struct nlmsgerr *)NLMSG_DATA(head))->error;
	close(fd);
	return result;
}

static void make_veth(int peer_fd)
{
	struct request request = request_for(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, 0);
	struct rtattr *info, *data, *peer;
	const struct ifinfomsg link = { 0 };
	int err;

	put(&request, IFLA_IFNAME, "s0", 3);
	info = put(&request, IFLA_LINKINFO, NULL, 0);
	put(&request, IFLA_INFO_KIND, "veth", 4);
	data = put(&request, IFLA_INFO_DATA, NULL, 0);
	peer = put(&request, VETH_INFO_PEER, &link, sizeof(link));
	put(&request, IFLA_IFNAME, "r0", 3);
	put(&request, IFLA_NET_NS_FD, &peer_fd, sizeof(peer_fd));
	close_nest(&request, peer);
	close_nest(&request, data);
	close_nest(&request, info);
	err = send_request(&request);
	if (err)
		channel__fail("veth: %s: %s", strerror(-err), err == -EOPNOTSUPP ?
			      "this kernel has no veth; use --topology loopback or another --kernel" : "cannot create it");
}

static void move_link(const char *name, int namespace_fd)
{
	struct request request = request_for(RTM_SETLINK, 0, if_nametoindex(name));
	int err;

	if (!request.link.ifi_index)
		channel__fail("%s: no such network card in this guest", name);
	put(&request, IFLA_NET_NS_FD, &namespace_fd, sizeof(namespace_fd));
	err = send_request(&request);
	if (err)
		channel__fail("%s: cannot move it to a network namespace: %s", name, strerror(-err));
}

/* Load a program that returns XDP_PASS for every packet, like bpf/xdp_pass.bpf.c, but without a loader. */
static int load_pass(void)
{
	const struct bpf_insn pass[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .imm = XDP_PASS },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	/*
	 * If an initialiser names a union member, GCC 15 and newer leave the other bytes undefined, and the kernel
	 * refuses nonzero bytes.
	 */
	union bpf_attr wanted = {};

	wanted.prog_type = BPF_PROG_TYPE_XDP;
	wanted.insns = (uintptr_t)pass;
	wanted.insn_cnt = sizeof(pass) / sizeof(*pass);
	wanted.license = (uintptr_t)"GPL";
	return syscall(SYS_bpf, BPF_PROG_LOAD, &wanted, sizeof(wanted));
}

static void attach_xdp(const char *name)
{
	struct request request = request_for(RTM_SETLINK, 0, if_nametoindex(name));
	const __u32 native = XDP_FLAGS_DRV_MODE;
	const int program = load_pass();
	struct rtattr *nest;
	int err;

	if (program < 0)
		channel__fail("veth-xdp: bpf: %s", strerror(errno));
	nest = put(&request, IFLA_XDP | NLA_F_NESTED, NULL, 0);
	put(&request, IFLA_XDP_FD, &program, sizeof(program));
	put(&request, IFLA_XDP_FLAGS, &native, sizeof(native));
	close_nest(&request, nest);
	err = send_request(&request);
	if (err)
		channel__fail("veth-xdp: %s: native XDP: %s", name, strerror(-err));
	close(program);
}

static void set(int fd, unsigned long command, struct ifreq *wanted, const char *words)
{
	if (ioctl(fd, command, wanted))
		channel__fail("%s: %s: %s", wanted->ifr_name, words, strerror(errno));
}

static void set_address(int fd, unsigned long command, struct ifreq *wanted, const char *address)
{
	struct sockaddr_in *to = (void *)&wanted->ifr_addr;

	memset(to, 0, sizeof(*to));
	to->sin_family = AF_INET;
	inet_pton(AF_INET, address, &to->sin_addr);
	set(fd, command, wanted, address);
}

static void apply_setting(int fd, struct ifreq *wanted, const char *word)
{
	static const struct {
		const char *name;
		unsigned int command;
	} offloads[] = { { "tso", ETHTOOL_STSO }, { "gso", ETHTOOL_SGSO }, { "gro", ETHTOOL_SGRO } };

	if (!strncmp(word, "mtu=", 4)) {
		wanted->ifr_mtu = atoi(word + 4);
		set(fd, SIOCSIFMTU, wanted, word);
		return;
	}
	for (size_t i = 0; i < sizeof(offloads) / sizeof(*offloads); i++)
		if (!strncmp(word, offloads[i].name, 3) && word[3] == '=') {
			struct ethtool_value value = { offloads[i].command, !strcmp(word + 4, "on") };

			wanted->ifr_data = (void *)&value;
			set(fd, SIOCETHTOOL, wanted, word);
			return;
		}
	channel__fail("network: %s: unknown setting", word);
}

static void bring_up(const char *name, const char *address, const char *words)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq wanted = { 0 };
	char all[256], *rest = all, *word;

	strncpy(wanted.ifr_name, name, IFNAMSIZ - 1);
	snprintf(all, sizeof(all), "%s", words);
	while ((word = strsep(&rest, " ")))
		if (*word)
			apply_setting(fd, &wanted, word);
	if (address) {
		set_address(fd, SIOCSIFADDR, &wanted, address);
		set_address(fd, SIOCSIFNETMASK, &wanted, "255.255.255.0");
	}
	wanted.ifr_flags = IFF_UP;
	set(fd, SIOCSIFFLAGS, &wanted, "up");
	close(fd);
}

static void await_carrier(const char *name)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq wanted = { 0 };

	strncpy(wanted.ifr_name, name, IFNAMSIZ - 1);
	for (unsigned int i = 0; !(wanted.ifr_flags & IFF_RUNNING); i++) {
		if (i == CARRIER_TRIES)
			channel__fail("%s: no carrier", name);
		usleep(1000);
		set(fd, SIOCGIFFLAGS, &wanted, "flags");
	}
	close(fd);
}

static int open_own_namespace(void)
{
	int fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		channel__fail("/proc/self/ns/net: %s", strerror(errno));
	return fd;
}

void network__enter(int namespace_fd)
{
	if (setns(namespace_fd, CLONE_NEWNET))
		channel__fail("setns: %s", strerror(errno));
}

void network__make(struct network *network, const char *kind, const char *words)
{
	const int use_nics = !strcmp(kind, "nics");
	const char *sender = use_nics ? "eth0" : "s0";
	const char *receiver = use_nics ? "eth1" : "r0";

	network->sender_fd = open_own_namespace();
	if (!strcmp(kind, "loopback")) {
		network->receiver_fd = network->sender_fd;
		bring_up("lo", NULL, words);
		return;
	}
	if (!use_nics && strcmp(kind, "veth") && strcmp(kind, "veth-xdp"))
		channel__fail("network: %s: unknown kind", kind);
	if (unshare(CLONE_NEWNET))
		channel__fail("unshare: %s", strerror(errno));
	network->receiver_fd = open_own_namespace();
	network__enter(network->sender_fd);
	if (use_nics)
		move_link(receiver, network->receiver_fd);
	else
		make_veth(network->receiver_fd);
	bring_up(sender, SENDER_ADDRESS, words);
	network__enter(network->receiver_fd);
	bring_up(receiver, RECEIVER_ADDRESS, words);
	if (!strcmp(kind, "veth-xdp"))
		attach_xdp(receiver);
	await_carrier(receiver);
	network__enter(network->sender_fd);
	await_carrier(sender);
}
