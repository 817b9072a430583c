/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SIMULATOR_QEMU_ABI_H
#define SIMULATOR_QEMU_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The part of QEMU's plugin interface (include/qemu/qemu-plugin.h in QEMU) that the plugin uses, because no
 * distribution packages that header. QEMU_API is the version of the QEMU that is to load the plugin: 1 up to 8.2, 2
 * in 9.0, 3 in 9.1, 4 in 9.2 to 10.0, 5 in 10.1, 6 from 10.2, 7 in 11.1. QEMU refuses plugins of another version.
 */
#ifndef QEMU_API
#error "QEMU_API is not defined: set the plugin API version of the QEMU that is to load the plugin"
#endif

#define QEMU_EXPORT __attribute__((visibility("default")))

typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_hwaddr;

enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_CB_R_REGS };
enum qemu_plugin_mem_rw { QEMU_PLUGIN_MEM_R = 1, QEMU_PLUGIN_MEM_W, QEMU_PLUGIN_MEM_RW };

/*
 * Before version 7, callbacks get the plugin's id first; from 7 on, they get user data last. The plugin needs
 * neither. These macros hide the difference.
 */
#if QEMU_API < 7
#define QEMU_ID_FIRST __attribute__((unused)) qemu_plugin_id_t id_,
#define QEMU_DATA_LAST
#define QEMU_NO_DATA
#define QEMU_ONE_ARGUMENT __attribute__((unused)) qemu_plugin_id_t id_
#else
#define QEMU_ID_FIRST
#define QEMU_DATA_LAST , __attribute__((unused)) void *data_
#define QEMU_NO_DATA , NULL
#define QEMU_ONE_ARGUMENT __attribute__((unused)) void *data_
#endif

typedef void (*qemu_plugin_reset_cb_t)(QEMU_ONE_ARGUMENT);
typedef void (*qemu_plugin_udata_cb_t)(QEMU_ID_FIRST void *userdata);
typedef void (*qemu_plugin_vcpu_init_cb_t)(QEMU_ID_FIRST unsigned int vcpu QEMU_DATA_LAST);
typedef void (*qemu_plugin_vcpu_tb_trans_cb_t)(QEMU_ID_FIRST struct qemu_plugin_tb *tb QEMU_DATA_LAST);
typedef void (*qemu_plugin_vcpu_udata_cb_t)(unsigned int vcpu, void *userdata);
typedef void (*qemu_plugin_vcpu_mem_cb_t)(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address,
					  void *userdata);

void qemu_plugin_reset(qemu_plugin_id_t id, qemu_plugin_reset_cb_t callback QEMU_DATA_LAST);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, qemu_plugin_udata_cb_t callback, void *userdata);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
					   qemu_plugin_vcpu_tb_trans_cb_t callback QEMU_DATA_LAST);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb, qemu_plugin_vcpu_udata_cb_t callback,
					  enum qemu_plugin_cb_flags flags, void *userdata);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, qemu_plugin_vcpu_udata_cb_t callback,
					    enum qemu_plugin_cb_flags flags, void *userdata);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn, qemu_plugin_vcpu_mem_cb_t callback,
				      enum qemu_plugin_cb_flags flags, enum qemu_plugin_mem_rw rw, void *userdata);

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t index);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
#if QEMU_API < 3
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);
#else
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *to, size_t size);
#endif

unsigned int qemu_plugin_mem_size_shift(qemu_plugin_meminfo_t info);
bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t info);
struct qemu_plugin_hwaddr *qemu_plugin_get_hwaddr(qemu_plugin_meminfo_t info, uint64_t address);
bool qemu_plugin_hwaddr_is_io(const struct qemu_plugin_hwaddr *address);
uint64_t qemu_plugin_hwaddr_phys_addr(const struct qemu_plugin_hwaddr *address);

#if QEMU_API >= 2
struct qemu_plugin_register;
/* Later versions are longer; the array knows the element size. */
typedef struct {
	struct qemu_plugin_register *handle;
	const char *name, *feature;
} qemu_plugin_reg_descriptor;
/* Declarations of glib, which QEMU has loaded already. */
typedef struct {
	char *data;
	unsigned int len;
} GArray;
typedef struct {
	uint8_t *data;
	unsigned int len;
} GByteArray;
GByteArray *g_byte_array_new(void);
GByteArray *g_byte_array_set_size(GByteArray *array, unsigned int size);
unsigned int g_array_get_element_size(GArray *array);
char *g_array_free(GArray *array, int free_segment);

void qemu_plugin_register_vcpu_init_cb(qemu_plugin_id_t id, qemu_plugin_vcpu_init_cb_t callback QEMU_DATA_LAST);
GArray *qemu_plugin_get_registers(void);
#if QEMU_API < 6
int qemu_plugin_read_register(struct qemu_plugin_register *handle, GByteArray *to);
#else
bool qemu_plugin_read_register(struct qemu_plugin_register *handle, GByteArray *to);
#endif
#endif

#endif
