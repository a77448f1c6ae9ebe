#define _GNU_SOURCE

#include "glue.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of stack that a call of the library may need. A call with less would end the process. */
#define STACK_BYTES (576 << 10)

/* The class Failures and its method that makes an exception. */
static jclass failures;
static jmethodID failure_of;

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM *vm, void *reserved)
{
    JNIEnv *env;
    jclass found;

    (void)reserved;
    if ((*vm)->GetEnv(vm, (void **)&env, JNI_VERSION_1_8) != JNI_OK)
        return JNI_ERR;
    if (!(found = (*env)->FindClass(env, "io/eyas/Failures")) ||
        !(failures = (*env)->NewGlobalRef(env, found)))
        return JNI_ERR;
    failure_of = (*env)->GetStaticMethodID(env, failures, "of", "(I[B[B)Ljava/io/IOException;");
    return failure_of ? JNI_VERSION_1_8 : JNI_ERR;
}

/* The lowest address of this thread's stack; 0 if that is not known. */
static uintptr_t lowest_address(void)
{
    static __thread uintptr_t lowest;
    pthread_attr_t attributes;
    void *address;
    size_t size;

    if (!lowest && !pthread_getattr_np(pthread_self(), &attributes)) {
        if (!pthread_attr_getstack(&attributes, &address, &size))
            lowest = (uintptr_t)address;
        pthread_attr_destroy(&attributes);
    }
    return lowest;
}

int has_stack(JNIEnv *env)
{
    char here;

    if ((uintptr_t)&here - lowest_address() >= STACK_BYTES)
        return 1;
    throw_new(env, "java/lang/StackOverflowError",
              "a call of eyas needs 576 KiB of the thread's stack: use a thread with a larger one");
    return 0;
}

void throw_new(JNIEnv *env, const char *class_name, const char *message)
{
    jclass found = (*env)->FindClass(env, class_name);

    if (found)
        (*env)->ThrowNew(env, found, message);
}

int is_ok(JNIEnv *env, eyas_status status, jbyteArray path)
{
    jbyteArray message;
    jthrowable failure;

    if (status == EYAS_STATUS_OK)
        return 1;
    if ((message = array_of_text(env, eyas_error_message()))) {
        failure = (*env)->CallStaticObjectMethod(env, failures, failure_of, (jint)status, message,
                                                 path);
        if (failure && !(*env)->ExceptionCheck(env))
            (*env)->Throw(env, failure);
    }
    return 0;
}

int has_next(JNIEnv *env, eyas_status status, jbyteArray path)
{
    return status != EYAS_STATUS_END && is_ok(env, status, path);
}

char *text_of(JNIEnv *env, jbyteArray bytes)
{
    jsize length;
    char *text;

    if (!bytes) {
        throw_new(env, "java/lang/NullPointerException", "a text is null");
        return NULL;
    }
    length = (*env)->GetArrayLength(env, bytes);
    if (!(text = malloc((size_t)length + 1))) {
        throw_new(env, "java/lang/OutOfMemoryError", "there is no memory for a text");
        return NULL;
    }
    (*env)->GetByteArrayRegion(env, bytes, 0, length, (jbyte *)text);
    text[length] = '\0';
    return text;
}

jbyteArray array_of(JNIEnv *env, const void *bytes, size_t length)
{
    jbyteArray array;

    if (length > INT32_MAX) {
        throw_new(env, "java/lang/OutOfMemoryError", "an array has at most 2 GiB");
        return NULL;
    }
    if ((array = (*env)->NewByteArray(env, (jsize)length)))
        (*env)->SetByteArrayRegion(env, array, 0, (jsize)length, bytes);
    return array;
}

jbyteArray array_of_text(JNIEnv *env, const char *text)
{
    return text ? array_of(env, text, strlen(text)) : NULL;
}

int is_within(JNIEnv *env, jlong at, jlong count, jlong length)
{
    if (at >= 0 && count >= 0 && at <= length && count <= length - at)
        return 1;
    throw_new(env, "java/lang/IndexOutOfBoundsException", "the bytes are not within the buffer");
    return 0;
}

int put_numbers(JNIEnv *env, jlongArray array, const jlong *numbers, jsize count)
{
    if (!array) {
        throw_new(env, "java/lang/NullPointerException", "the array of results is null");
        return 0;
    }
    (*env)->SetLongArrayRegion(env, array, 0, count, numbers);
    return !(*env)->ExceptionCheck(env);
}

int put_pair(JNIEnv *env, jobjectArray array, jobject first, jobject second)
{
    if (!array) {
        throw_new(env, "java/lang/NullPointerException", "the array of results is null");
        return 0;
    }
    (*env)->SetObjectArrayElement(env, array, 0, first);
    if (!(*env)->ExceptionCheck(env))
        (*env)->SetObjectArrayElement(env, array, 1, second);
    return !(*env)->ExceptionCheck(env);
}

int put_info(JNIEnv *env, jlongArray array, const eyas_file_info *info)
{
    const jlong numbers[] = {
        (jlong)info->kind,       (jlong)info->size_bytes, (jlong)info->modified_ns,
        (jlong)info->changed_ns, (jlong)info->mode,       (jlong)info->uid,
        (jlong)info->gid,        (jlong)info->chunk_bytes, (jlong)info->replication,
    };

    return put_numbers(env, array, numbers, sizeof numbers / sizeof *numbers);
}
