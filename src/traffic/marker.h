/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TRAFFIC_MARKER_H
#define TRAFFIC_MARKER_H

/*
 * What the simulator (src/simulator/) must be told is told by an instruction that does nothing, anywhere:
 * nopl 0x4353XXXX(%rax), seven bytes.
 */
#define MARKER_SENDER 0x0001	/* this thread sends from here on */
#define MARKER_RECEIVER 0x0002
#define MARKER_WARM 0x0010	/* the caches fill from here on */
#define MARKER_COUNT 0x0011	/* what happens counts from here on */
#define MARKER_STOP 0x0012	/* up to here */
#define MARKER_AWAIT 0x0013	/* what happens counts from the first byte on that anybody sends */

#ifdef __x86_64__
#define marker__execute(number) \
	asm volatile(".byte 0x0f, 0x1f, 0x80; .short %c0; .byte 0x53, 0x43" : : "i"(number) : "memory")
#else
#define marker__execute(number) ((void)(number))
#endif

#endif
