/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * message.h - output of the collector: error lines `collector: object: reason` on stderr, and JSON lines on stdout.
 */
#ifndef COLLECTOR_MESSAGE_H
#define COLLECTOR_MESSAGE_H

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#define complain(object, fmt, ...) fprintf(stderr, "collector: %s: " fmt "\n", object, ##__VA_ARGS__)

/*
 * Print one line of JSON on stdout and release the message. On failure print an error and return -EIO, else return 0.
 */
int print_json_line(json_t *message);

#endif
