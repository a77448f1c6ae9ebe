/* Readers and writers of files. */

#include "glue.h"

#include <stdlib.h>

/* Bytes that are copied on the stack. Larger parts are copied in memory of their own. */
#define STACK_PART_BYTES 8192

static size_t smaller(size_t one, size_t other)
{
    return one < other ? one : other;
}

/* Memory for a part of `count` bytes: `own`, or memory to be freed by `free_part()`. NULL, with an
 * exception pending, if there is none. */
static char *part_of(JNIEnv *env, jint count, char *own)
{
    char *part = own;

    if (count > STACK_PART_BYTES && !(part = malloc(smaller((size_t)count, PART_BYTES))))
        throw_new(env, "java/lang/OutOfMemoryError", "there is no memory for a part of a file");
    return part;
}

static void free_part(char *part, char *own)
{
    if (part != own)
        free(part);
}

/* The bytes of a direct buffer; NULL, with an exception pending, if it has none there. */
static char *bytes_of(JNIEnv *env, jobject buffer, jint at, jint count)
{
    char *bytes = buffer ? (*env)->GetDirectBufferAddress(env, buffer) : NULL;

    if (!bytes) {
        throw_new(env, "java/lang/IllegalArgumentException", "the buffer is not direct");
        return NULL;
    }
    if (!is_within(env, at, count, (*env)->GetDirectBufferCapacity(env, buffer)))
        return NULL;
    return bytes + at;
}

NATIVE(jlong, openReader)(JNIEnv *env, jclass class, jlong client, jbyteArray path)
{
    eyas_reader *reader = NULL;
    char *text;

    (void)class;
    ENTER(env, 0);
    if (!(text = text_of(env, path)))
        return 0;
    is_ok(env, eyas_open(HANDLE(eyas_client, client), text, &reader), path);
    free(text);
    return NUMBER(reader);
}

NATIVE(void, readerInfo)(JNIEnv *env, jclass class, jlong reader, jlongArray found)
{
    eyas_file_info info;

    (void)class;
    ENTER(env, );
    if (is_ok(env, eyas_reader_info(HANDLE(eyas_reader, reader), &info, sizeof info), NULL))
        put_info(env, found, &info);
}

/* Reads up to `count` bytes into an array, part by part. Returns their number. */
NATIVE(jint, read)(JNIEnv *env, jclass class, jlong reader, jlong offset, jbyteArray bytes,
                   jint at, jint count)
{
    char own[STACK_PART_BYTES], *part;
    jint done = 0;
    size_t wanted, got;

    (void)class;
    ENTER(env, 0);
    if (!bytes) {
        throw_new(env, "java/lang/NullPointerException", "the buffer is null");
        return 0;
    }
    if (!is_within(env, at, count, (*env)->GetArrayLength(env, bytes)) ||
        !(part = part_of(env, count, own)))
        return 0;
    do {
        wanted = smaller((size_t)(count - done),
                         count > STACK_PART_BYTES ? PART_BYTES : sizeof own);
        if (!is_ok(env,
                   eyas_read(HANDLE(eyas_reader, reader), (uint64_t)offset + (uint64_t)done, part,
                             wanted, &got),
                   NULL))
            break;
        (*env)->SetByteArrayRegion(env, bytes, at + done, (jint)got, (const jbyte *)part);
        done += (jint)got;
    } while (got == wanted && done < count);
    free_part(part, own);
    return done;
}

NATIVE(jint, readDirect)(JNIEnv *env, jclass class, jlong reader, jlong offset, jobject buffer,
                         jint at, jint count)
{
    char *bytes;
    size_t got;

    (void)class;
    ENTER(env, 0);
    if (!(bytes = bytes_of(env, buffer, at, count)) ||
        !is_ok(env,
               eyas_read(HANDLE(eyas_reader, reader), (uint64_t)offset, bytes, (size_t)count, &got),
               NULL))
        return 0;
    return (jint)got;
}

NATIVE(void, closeReader)(JNIEnv *env, jclass class, jlong reader)
{
    (void)class;
    ENTER(env, );
    eyas_reader_close(HANDLE(eyas_reader, reader));
}

NATIVE(jlong, create)(JNIEnv *env, jclass class, jlong client, jbyteArray path, jbyteArray format,
                      jlong chunk_bytes, jint replication, jboolean replaces)
{
    char *text = NULL, *name = NULL;
    eyas_writer *writer = NULL;

    (void)class;
    ENTER(env, 0);
    if ((!format || (name = text_of(env, format))) && (text = text_of(env, path))) {
        const eyas_write_options options = {
            .format = name,
            .chunk_bytes = (uint64_t)chunk_bytes,
            .replication = (uint32_t)replication,
            .replaces = replaces ? 1 : 0,
        };
        is_ok(env,
              eyas_create(HANDLE(eyas_client, client), text, &options, sizeof options, &writer),
              path);
    }
    free(text);
    free(name);
    return NUMBER(writer);
}

NATIVE(jlong, append)(JNIEnv *env, jclass class, jlong client, jbyteArray path)
{
    eyas_writer *writer = NULL;
    char *text;

    (void)class;
    ENTER(env, 0);
    if (!(text = text_of(env, path)))
        return 0;
    is_ok(env, eyas_append(HANDLE(eyas_client, client), text, &writer), path);
    free(text);
    return NUMBER(writer);
}

NATIVE(jlong, edit)(JNIEnv *env, jclass class, jlong client, jbyteArray path, jboolean creates)
{
    eyas_writer *writer = NULL;
    char *text;

    (void)class;
    ENTER(env, 0);
    if (!(text = text_of(env, path)))
        return 0;
    is_ok(env, eyas_edit(HANDLE(eyas_client, client), text, creates ? 1 : 0, &writer), path);
    free(text);
    return NUMBER(writer);
}

/* Writes at an offset, or at the end of what was written before if the offset is negative. */
static eyas_status write_part(jlong writer, jlong offset, const char *part, size_t count)
{
    if (offset < 0)
        return eyas_write(HANDLE(eyas_writer, writer), part, count);
    return eyas_write_at(HANDLE(eyas_writer, writer), (uint64_t)offset, part, count);
}

NATIVE(void, write)(JNIEnv *env, jclass class, jlong writer, jlong offset, jbyteArray bytes,
                    jint at, jint count)
{
    char own[STACK_PART_BYTES], *part;
    jint done = 0, size;

    (void)class;
    ENTER(env, );
    if (!bytes) {
        throw_new(env, "java/lang/NullPointerException", "the buffer is null");
        return;
    }
    if (!is_within(env, at, count, (*env)->GetArrayLength(env, bytes)) ||
        !(part = part_of(env, count, own)))
        return;
    do {
        size = (jint)smaller((size_t)(count - done),
                             count > STACK_PART_BYTES ? PART_BYTES : sizeof own);
        (*env)->GetByteArrayRegion(env, bytes, at + done, size, (jbyte *)part);
        if (!is_ok(env, write_part(writer, offset < 0 ? offset : offset + done, part, (size_t)size),
                   NULL))
            break;
        done += size;
    } while (done < count);
    free_part(part, own);
}

NATIVE(void, writeDirect)(JNIEnv *env, jclass class, jlong writer, jlong offset, jobject buffer,
                          jint at, jint count)
{
    char *bytes;

    (void)class;
    ENTER(env, );
    if ((bytes = bytes_of(env, buffer, at, count)))
        is_ok(env, write_part(writer, offset, bytes, (size_t)count), NULL);
}

NATIVE(void, setSize)(JNIEnv *env, jclass class, jlong writer, jlong size_bytes)
{
    (void)class;
    ENTER(env, );
    is_ok(env, eyas_writer_set_size(HANDLE(eyas_writer, writer), (uint64_t)size_bytes), NULL);
}

NATIVE(void, publish)(JNIEnv *env, jclass class, jlong writer, jbyteArray path)
{
    (void)class;
    ENTER(env, );
    is_ok(env, eyas_writer_close(HANDLE(eyas_writer, writer)), path);
}

NATIVE(void, discard)(JNIEnv *env, jclass class, jlong writer)
{
    (void)class;
    ENTER(env, );
    eyas_writer_discard(HANDLE(eyas_writer, writer));
}
