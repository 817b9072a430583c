/* SPDX-License-Identifier: GPL-2.0 */
/* message.h - what the collector says: to people one line on stderr, `collector: object: reason`; else JSON lines. */
#ifndef COLLECTOR_MESSAGE_H
#define COLLECTOR_MESSAGE_H

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#define complain(object, fmt, ...) fprintf(stderr, "collector: %s: " fmt "\n", object, ##__VA_ARGS__)

/* One line of JSON on stdout; takes the message. Returns 0 or -EIO, having complained. */
int say(json_t *message);

#endif
