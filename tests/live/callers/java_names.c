// SPDX-License-Identifier: GPL-2.0-only
/*
 * java_names.c - writes the names of JIT-compiled Java code and of the JVM's stubs to /tmp/perf-PID.map, as agents such as
 * perf-map-agent do. Use: java -agentpath:java_names.so
 */
#include <jvmti.h>
#include <stdio.h>
#include <unistd.h>

static FILE *names;

static void JNICALL on_stub(jvmtiEnv *jvmti, const char *name, const void *address, jint length)
{
	(void)jvmti;
	fprintf(names, "%lx %x %s\n", (unsigned long)address, length, name);
}

static void JNICALL on_method(jvmtiEnv *jvmti, jmethodID id, jint length, const void *address, jint count,
			      const jvmtiAddrLocationMap *map, const void *info)
{
	char *name;

	(void)count, (void)map, (void)info;
	if ((*jvmti)->GetMethodName(jvmti, id, &name, NULL, NULL) == JVMTI_ERROR_NONE)
		on_stub(jvmti, name, address, length);
}

JNIEXPORT jint JNICALL Agent_OnLoad(JavaVM *vm, char *options, void *reserved)
{
	jvmtiEventCallbacks calls = { .CompiledMethodLoad = on_method, .DynamicCodeGenerated = on_stub };
	jvmtiCapabilities wanted = { .can_generate_compiled_method_load_events = 1 };
	jvmtiEnv *jvmti;
	char path[64];

	(void)options, (void)reserved;
	snprintf(path, sizeof(path), "/tmp/perf-%d.map", getpid());
	names = fopen(path, "w");
	if (!names || setvbuf(names, NULL, _IOLBF, 0) || (*vm)->GetEnv(vm, (void **)&jvmti, JVMTI_VERSION_1_2) ||
	    (*jvmti)->AddCapabilities(jvmti, &wanted) || (*jvmti)->SetEventCallbacks(jvmti, &calls, sizeof(calls)) ||
	    (*jvmti)->SetEventNotificationMode(jvmti, JVMTI_ENABLE, JVMTI_EVENT_COMPILED_METHOD_LOAD, NULL))
		return JNI_ERR;
	return (*jvmti)->SetEventNotificationMode(jvmti, JVMTI_ENABLE, JVMTI_EVENT_DYNAMIC_CODE_GENERATED, NULL);
}
