/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef GUEST_NETWORK_H
#define GUEST_NETWORK_H

struct network {
	int sender_fd, receiver_fd;	/* network namespaces of sender and receiver */
};

/*
 * Set up a path between sender and receiver: `loopback`, `veth` (two namespaces), `veth-xdp` (an XDP program on the
 * receiving device passes all packets), or `nics` (as veth, with the first two network cards). `words`: further words
 * of the job's line: mtu=N, tso=on, gso=off, gro=on.
 */
void network__make(struct network *network, const char *kind, const char *words);
void network__enter(int namespace_fd);

#endif
