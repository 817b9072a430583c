// SPDX-License-Identifier: GPL-2.0-only
#include "stored_sockets.h"

#include <errno.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <copyscope.skel.h>

#include "abi.h"
#include "report/maps.h"

#define SOCKETS_AT_ONCE 1024

bool stored_sockets__exist(const struct btf *btf)
{
	return btf__find_by_name_kind(btf, "bpf_sk_storage_get_tracing", BTF_KIND_FUNC) > 0;
}

struct bpf_link *stored_sockets__attach(const struct copyscope *skel)
{
	union bpf_iter_link_info info = { .map.map_fd = bpf_map__fd(skel->maps.stored_cells) };
	LIBBPF_OPTS(bpf_iter_attach_opts, options, .link_info = &info, .link_info_len = sizeof(info));

	return bpf_program__attach_iter(skel->progs.list_sockets, &options);
}

void stored_sockets__each(const struct bpf_link *link, void (*each)(void *context, const struct socket_cell *cell), void *context)
{
	struct socket_cell cells[SOCKETS_AT_ONCE + 1];
	size_t filled = 0;
	ssize_t bytes;
	int fd;

	if (!link)
		return;
	fd = bpf_iter_create(bpf_link__fd(link));
	if (fd < 0) {
		maps__note_unread(-errno);
		return;
	}
	/* A read may end inside a cell. */
	while ((bytes = read(fd, (char *)cells + filled, SOCKETS_AT_ONCE * sizeof(*cells) - filled)) > 0 || (bytes < 0 && errno == EAGAIN)) {
		filled += bytes > 0 ? bytes : 0;
		for (size_t i = 0; i < filled / sizeof(*cells); i++)
			each(context, &cells[i]);
		cells[0] = cells[filled / sizeof(*cells)];
		filled %= sizeof(*cells);
	}
	if (bytes < 0)
		maps__note_unread(-errno);
	close(fd);
}
