/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TRAFFIC_MARKER_H
#define TRAFFIC_MARKER_H

/*
 * Markers for the simulator (src/simulator/). A marker is the instruction nopl 0x4353XXXX(%rax), seven bytes, where XXXX is
 * one of the numbers below. On a real machine the instruction has no effect.
 */
#define MARKER_SENDER 0x0001	/* this thread sends from now on */
#define MARKER_RECEIVER 0x0002	/* this thread receives from now on */
#define MARKER_WARM 0x0010	/* start filling the simulated caches, without counting */
#define MARKER_COUNT 0x0011	/* start counting */
#define MARKER_STOP 0x0012	/* stop counting */
#define MARKER_AWAIT 0x0013	/* start counting at the first byte that any thread sends */

#ifdef __x86_64__
#define marker__execute(number) \
	asm volatile(".byte 0x0f, 0x1f, 0x80; .short %c0; .byte 0x53, 0x43" : : "i"(number) : "memory")
#else
#define marker__execute(number) ((void)(number))
#endif

#endif
