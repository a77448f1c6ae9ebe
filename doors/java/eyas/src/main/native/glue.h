/* What the files of the glue share: arguments of Java as C has them, and failures as exceptions.
 *
 * The glue only converts. It never keeps an address of Java's memory, and never reads a handle:
 * the C library does not, either, so that any number is a possible argument. */

#ifndef EYAS_GLUE_H
#define EYAS_GLUE_H

#include <eyas.h>
#include <jni.h>

/* The C library's handle that Java keeps as a number. */
#define HANDLE(type, number) ((type *)(uintptr_t)(number))
#define NUMBER(handle) ((jlong)(uintptr_t)(handle))

/* A method of the class Native. */
#define NATIVE(type, name) JNIEXPORT type JNICALL Java_io_eyas_Native_##name

/* Most bytes that are copied between an array of Java and the library at once. */
#define PART_BYTES (1 << 20)

/* Ends a method, with an exception pending, if the thread has too little stack for the library. */
#define ENTER(env, result)                                                                      \
    do {                                                                                        \
        if (!has_stack(env))                                                                    \
            return result;                                                                      \
    } while (0)

/* Whether the thread has enough stack. Otherwise a StackOverflowError is pending. */
int has_stack(JNIEnv *env);

/* Whether a call succeeded. Otherwise its failure is pending as an exception that names `path`,
 * which may be NULL. */
int is_ok(JNIEnv *env, eyas_status status, jbyteArray path);

/* The same for calls that may come to an end: 1 for success, 0 at the end or after a failure. */
int has_next(JNIEnv *env, eyas_status status, jbyteArray path);

/* A copy of the bytes of an array, with a NUL after them, to be freed. NULL, with an exception
 * pending, if the array is null or there is no memory. */
char *text_of(JNIEnv *env, jbyteArray bytes);

/* A new array of these bytes. NULL, with an exception pending, if it cannot be made. */
jbyteArray array_of(JNIEnv *env, const void *bytes, size_t length);

/* The same of a text, which may be NULL. */
jbyteArray array_of_text(JNIEnv *env, const char *text);

/* Throws an exception of a class that every Java has. */
void throw_new(JNIEnv *env, const char *class_name, const char *message);

/* Whether the bytes from `at` on lie within `length`. Otherwise an exception is pending. */
int is_within(JNIEnv *env, jlong at, jlong count, jlong length);

/* Writes numbers to an array that has room for them; otherwise an exception is pending. */
int put_numbers(JNIEnv *env, jlongArray array, const jlong *numbers, jsize count);

/* Writes two objects, which may be null, to an array that has room for them; otherwise an exception
 * is pending. */
int put_pair(JNIEnv *env, jobjectArray array, jobject first, jobject second);

/* Writes what was found of a file, in the order of FileInfo.of(). */
int put_info(JNIEnv *env, jlongArray array, const eyas_file_info *info);

#endif
