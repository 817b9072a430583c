/* SPDX-License-Identifier: GPL-2.0 */
#ifndef GUEST_CHANNEL_H
#define GUEST_CHANNEL_H

/*
 * What the guest says to the host: lines through a debug port of QEMU (isa-debugcon). It needs no driver and no
 * interrupt, so nothing of it is in what is measured, and a string of any length is one instruction.
 */
int channel__open(void);
void channel__write(const char *text, unsigned long length);
void channel__say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* To the other port: symbols. */
void channel__symbols(const char *text, unsigned long length);
/* Says why, and turns the guest off. */
_Noreturn void channel__fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void channel__end(void);

#endif
