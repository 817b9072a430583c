/* SPDX-License-Identifier: GPL-2.0 */
#ifndef GUEST_NETWORK_H
#define GUEST_NETWORK_H

struct network {
	int sender_fd, receiver_fd;	/* the network namespaces of the sides */
};

/*
 * A path between two sides: `loopback`, `veth` (two namespaces), `veth-xdp` (a program that passes all packets on
 * the receiving device), `nics` (as veth, with the first two network cards). `words` are what follows on the job's line: mtu=N, tso=on, gso=off, gro=on.
 */
void network__make(struct network *network, const char *kind, const char *words);
void network__enter(int namespace_fd);

#endif
