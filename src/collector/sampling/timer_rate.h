/* SPDX-License-Identifier: GPL-2.0 */
/* timer_rate.h - how often this machine can really be interrupted by a timer. */
#ifndef COLLECTOR_TIMER_RATE_H
#define COLLECTOR_TIMER_RATE_H

struct sampling;

/*
 * Doubles a modest rate, up to wanted_hz, as long as nearly all samples of a few milliseconds arrive on one CPU.
 * 10 kHz is no trouble for a processor, and too much for one that is emulated.
 */
unsigned int timer_rate__find(struct sampling *skel, unsigned int wanted_hz);

#endif
