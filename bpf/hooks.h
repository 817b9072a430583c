/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * hooks.h - the table of kernel hooks, and the only file that names them.
 *
 * HOOK(id, instrument, tracepoint, need)
 *
 * id          name of the hook in the record; its BPF program is on_<id>
 * instrument  bytes | calls | sampler | functions: switched together, segment by segment
 *             watch | volume | copies | packets | shape: only for watched programs; watch and volume stay attached
 *             for the whole run
 * tracepoint  attached as tp_btf; exists if BTF has the typedef btf_trace_<tracepoint>
 * need        REQUIRED  the instrument does not run without it
 *             OPTIONAL  without it a column is missing, and the report says so
 *             OWN_TRAFFIC  as OPTIONAL, and not loaded while a program is watched
 *             FALLBACK  used only if the row before it does not exist, or cannot be loaded or attached
 *
 * BTF, never the kernel version, decides which tracepoints a kernel has. For reference: sock_send_length and
 * sock_recv_length are new in 6.3 (commit 6e6eda44b939); tcp_sendmsg_locked is in 6.16 but not in 6.12; the others are
 * older than 5.10.
 */
#ifndef COPYSCOPE_HOOKS_H
#define COPYSCOPE_HOOKS_H

#define HOOKS(HOOK) \
	HOOK(send_bytes, bytes, sock_send_length, OPTIONAL) \
	HOOK(send_bytes_at_exit, bytes, sys_exit, FALLBACK) \
	HOOK(receive_bytes, bytes, sock_recv_length, OPTIONAL) \
	HOOK(receive_bytes_at_exit, bytes, sys_exit, FALLBACK) \
	HOOK(copy_out_bytes, bytes, skb_copy_datagram_iovec, REQUIRED) \
	HOOK(uring_bytes, bytes, io_uring_complete, OPTIONAL) \
	HOOK(syscall_enter, calls, sys_enter, REQUIRED) \
	HOOK(syscall_exit, calls, sys_exit, REQUIRED) \
	HOOK(task_switch, calls, sched_switch, REQUIRED) \
	HOOK(softirq_enter, calls, softirq_entry, REQUIRED) \
	HOOK(softirq_leave, calls, softirq_exit, REQUIRED) \
	HOOK(packet_owner, sampler, netif_receive_skb, OPTIONAL) \
	HOOK(device_polled, sampler, napi_poll, OWN_TRAFFIC) \
	HOOK(process_fork, watch, sched_process_fork, REQUIRED) \
	HOOK(thread_exit, watch, sched_process_exit, REQUIRED) \
	HOOK(process_exit, watch, sched_process_exit, REQUIRED) \
	HOOK(process_exec, watch, sched_process_exec, OPTIONAL) \
	HOOK(socket_closed, watch, inet_sock_set_state, OPTIONAL) \
	HOOK(socket_destroyed, watch, tcp_destroy_sock, OPTIONAL) \
	HOOK(volume_received, volume, sock_recv_length, OPTIONAL) \
	HOOK(volume_sent, volume, sock_send_length, OPTIONAL) \
	HOOK(volume_sent_at_exit, volume, sys_exit, FALLBACK) \
	HOOK(splice_seen, volume, tcp_rcv_space_adjust, OPTIONAL) \
	HOOK(volume_spliced, volume, sys_exit, REQUIRED) \
	HOOK(completion, watch, inet_sk_error_report, OPTIONAL) \
	HOOK(uring_complete, watch, io_uring_complete, OPTIONAL) \
	HOOK(volume_copied_out, copies, skb_copy_datagram_iovec, REQUIRED) \
	HOOK(packet, packets, net_dev_start_xmit, OPTIONAL) \
	HOOK(shape, shape, sys_exit, OPTIONAL) \
	HOOK(file_read, shape, sys_exit, OPTIONAL) \
	HOOK(round_end, shape, sock_send_length, OPTIONAL) \
	HOOK(round, shape, tcp_sendmsg_locked, OPTIONAL) \
	HOOK(shadow_switch, functions, sched_switch, REQUIRED) \
	HOOK(shadow_softirq_enter, functions, softirq_entry, REQUIRED) \
	HOOK(shadow_softirq_leave, functions, softirq_exit, REQUIRED)

/*
 * FUNCTION(id, symbols, category, kind, bytes, need, moves, arguments) - one row per kernel function. Each is hooked at its
 * entry and its exit, with fentry and fexit, or with kprobe and kretprobe where these are refused (attach.c).
 *
 * symbols   candidates, separated by |; the first that this kernel has is used
 * category  copy that its own time is charged to (enum category of abi_functions.h); SEND, RECEIVE or NONE: a function that
 *           only delimits copies
 * kind      SPAN | ROOT | REFERENCE | BRACKET | MARK | PART | CALL | OWN_ROOT (abi_functions.h); first argument of a ROOT:
 *           its socket
 * bytes     NONE | RETURNED (positive return value) | SKB_DATA_LEN (of the skb in the first argument) |
 *           CHECKED (second argument, if the third says that data goes to the kernel) |
 *           FOURTH_ARGUMENT, FIFTH_ARGUMENT (if it returned 0) |
 *           TAKEN (fourth argument if it returned 0, else the return value, if positive) |
 *           INSERTED_PAGES (pages in the counter that the fourth argument points at, if it returned 0) |
 *           SECOND_ARGUMENT (if it returned the same number: TCP discards a shorter copy)
 * need      REQUIRED | OPTIONAL, as above; send and receive are required, because copies are measured only inside them
 * moves     ALWAYS, or the only bytes that pass it: ZEROCOPY (MSG_ZEROCOPY and io_uring's) | PAGES (sendfile, splice) |
 *           TLS (kTLS) | PAGES_OR_TLS | MAP (TCP_ZEROCOPY_RECEIVE). Not hooked if our own traffic moves none of them
 * arguments arguments that the programs read, by name in the prototype: *NAME a pointer, NAME an integer, _ not read.
 *           If BTF has a different prototype the hook is left out, and the report says so (prototype.c)
 *
 * The table has only functions that copy, that pin instead of copying, or that delimit copies: each hook slows every call
 * of its function, and costs a grace period when it is detached. The sampler covers the stages between them.
 *
 * The copy into the kernel itself (_copy_from_iter) has no ftrace site on any kernel, because lib/ is built without them.
 * The rows of category COPY_IN up to copy_in_check are alternative ways to measure it; one of them is used (src/collector/functions/functions.c).
 * CALL: kprobes at the instructions in COPY_CALLERS that call the function, found in the running kernel's text, and at the
 * instructions after them. On older kernels the copy is inside skb_do_copy_data_nocache(), in which nothing can be hooked,
 * so the calls of that function are hooked.
 * BRACKET: tcp_wmem_schedule() (6.1 and newer) returns the number of bytes that are copied or pinned next. The next hooked
 * function ends the copy: tcp_sendmsg_locked() then looks for room for the next piece (page_frag, memory_free), pushes
 * what it has, or returns. On older kernels the copy begins when __check_object_size() has checked its destination. This
 * hook is more expensive, because every copy from user space calls that function.
 *
 * silent: every copy of packet data inside the kernel ends in skb_copy_bits(), which knows the length.
 * send_page, send_pages: splice and sendfile on kernels without skb_splice_from_iter().
 * copy_in_record, pin_record: kTLS. Its own functions are in a module and call no ROOT function, so in our own traffic
 * these two rows also count outside of a ROOT. sk_msg_memcopy_from_iter() returns the number of bytes copied from 6.13
 * on (commit fdf478d236dc, also in older stable series), and 0 before.
 * map: includes the removal of the old pages from the address space, and the TLB flush.
 */
#define FUNCTIONS(FUNCTION) \
	FUNCTION(send, "tcp_sendmsg", SEND, ROOT, NONE, REQUIRED, ALWAYS, "*sk") \
	FUNCTION(receive, "tcp_recvmsg", RECEIVE, ROOT, NONE, REQUIRED, ALWAYS, "*sk") \
	FUNCTION(copy_in_call, "_copy_from_iter|_copy_from_iter_nocache", COPY_IN, CALL, SECOND_ARGUMENT, OPTIONAL, ALWAYS, "_, bytes") \
	FUNCTION(copy_in_call_around, "skb_do_copy_data_nocache", COPY_IN, CALL, FIFTH_ARGUMENT, OPTIONAL, ALWAYS, "_, _, _, _, copy") \
	FUNCTION(copy_in, "tcp_wmem_schedule", COPY_IN, BRACKET, RETURNED, OPTIONAL, ALWAYS, "") \
	FUNCTION(copy_in_check, "__check_object_size", COPY_IN, BRACKET, CHECKED, OPTIONAL, ALWAYS, "_, n, to_user") \
	FUNCTION(copy_in_record, "sk_msg_memcopy_from_iter", COPY_IN, OWN_ROOT, TAKEN, OPTIONAL, TLS, "_, _, _, bytes") \
	FUNCTION(pin_record, "sk_msg_zerocopy_from_iter", PIN, OWN_ROOT, FOURTH_ARGUMENT, OPTIONAL, TLS, "_, _, _, bytes") \
	FUNCTION(pin, "skb_zerocopy_iter_stream", PIN, REFERENCE, RETURNED, OPTIONAL, ZEROCOPY, "") \
	FUNCTION(splice, "skb_splice_from_iter", PIN, REFERENCE, RETURNED, OPTIONAL, PAGES_OR_TLS, "") \
	FUNCTION(send_page, "tcp_sendpage", SEND, ROOT, NONE, OPTIONAL, PAGES, "*sk") \
	FUNCTION(send_pages, "do_tcp_sendpages", PIN, SPAN, RETURNED, OPTIONAL, PAGES_OR_TLS, "") \
	FUNCTION(deferred, "skb_copy_ubufs", DEFERRED, SPAN, SKB_DATA_LEN, OPTIONAL, ZEROCOPY, "*skb") \
	FUNCTION(copy_bits, "skb_copy_bits", SILENT, PART, FOURTH_ARGUMENT, OPTIONAL, ALWAYS, "_, _, _, len") \
	FUNCTION(copy_out, "simple_copy_to_iter", COPY_OUT, OWN_ROOT, RETURNED, OPTIONAL, ALWAYS, "") \
	FUNCTION(map, "tcp_zerocopy_receive", MAPPED, ROOT, NONE, OPTIONAL, MAP, "*sk") \
	FUNCTION(map_pages, "vm_insert_pages", MAPPED, SPAN, INSERTED_PAGES, OPTIONAL, MAP, "_, _, _, *num") \
	FUNCTION(page_frag, "sk_page_frag_refill", NONE, MARK, NONE, OPTIONAL, ALWAYS, "") \
	FUNCTION(memory_free, "tcp_stream_memory_free", NONE, MARK, NONE, OPTIONAL, ALWAYS, "") \
	FUNCTION(push, "tcp_push", NONE, MARK, NONE, OPTIONAL, ALWAYS, "") \
	FUNCTION(push_one, "tcp_push_one", NONE, MARK, NONE, OPTIONAL, ALWAYS, "") \
	FUNCTION(push_pending, "__tcp_push_pending_frames", NONE, MARK, NONE, OPTIONAL, ALWAYS, "")

/* TCP functions that call the copy. The last two exist only if the compiler did not inline them. */
#define COPY_CALLERS "tcp_sendmsg_locked|tcp_sendmsg_locked.cold|skb_copy_to_page_nocache|skb_do_copy_data_nocache"

/* How the measured program's bytes move, one bit each. */
enum moves {
	MOVES_ALWAYS = 1,
	MOVES_ZEROCOPY = 2,
	MOVES_PAGES = 4,
	MOVES_TLS = 8,
	MOVES_PAGES_OR_TLS = MOVES_PAGES | MOVES_TLS,
	MOVES_MAP = 16,
	MOVES_ALL = 31,
};

/* Row of a frame in a call stack; the last two rows have no function. */
enum function_row {
#define FUNCTION(id, symbols, category, kind, bytes, need, moves, arguments) ROW_##id,
	FUNCTIONS(FUNCTION)
#undef FUNCTION
	ROW_CNT,
	ROW_BRACKET = ROW_CNT,
	ROW_SOFTIRQ,
};

/*
 * ZEROCOPY(id, symbols, ends, arguments) - hooks on the life of a zero-copy send, from its ubuf_info to its
 * notification. symbols and arguments are as above. Part of the instrument `functions`: either all are attached or
 * none.
 *
 * ends  ENTER | LEAVE | BOTH. A kretprobe does not see the arguments, so the entry saves what the exit needs.
 *
 * The completion is hooked at its entry and its exit. At the entry a reference count of 1 means that this is the last
 * one. Two CPUs that drop the last two references at once both see 2 there, but 0 at the exit. 5.10 has a separate
 * function for the last reference, so zerocopy_last replaces zerocopy_drop and zerocopy_dropped there.
 */
#define ZEROCOPIES(ZEROCOPY) \
	ZEROCOPY(zerocopy_use, "msg_zerocopy_realloc|sock_zerocopy_realloc", BOTH, "*sk, _, *uarg") \
	ZEROCOPY(zerocopy_return, "tcp_sendmsg", LEAVE, "") \
	ZEROCOPY(zerocopy_copy, "skb_copy_ubufs", ENTER, "*skb") \
	ZEROCOPY(zerocopy_drop, "msg_zerocopy_complete|msg_zerocopy_callback", ENTER, "_, *uarg, success") \
	ZEROCOPY(zerocopy_dropped, "msg_zerocopy_complete|msg_zerocopy_callback", LEAVE, "_, *uarg") \
	ZEROCOPY(zerocopy_last, "sock_zerocopy_callback", ENTER, "*uarg, success")

enum life {
#define ZEROCOPY(id, symbols, ends, arguments) LIFE_##id,
	ZEROCOPIES(ZEROCOPY)
#undef ZEROCOPY
	LIFE_CNT,
};

#endif
