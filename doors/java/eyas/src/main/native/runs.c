/* Runs over elastic blocks, and the blocks themselves. */

#include "glue.h"

#include <stdlib.h>

NATIVE(jlong, openRun)(JNIEnv *env, jclass class, jlong client, jobjectArray paths, jint workers,
                       jlong term_ms, jlong idle_ms, jbyteArray policy)
{
    eyas_run_options options = {NULL, (uint64_t)term_ms, (uint64_t)idle_ms, (uint32_t)workers, 0};
    eyas_run *run = NULL;
    jsize count, known = 0;
    char *policy_text = NULL;
    jbyteArray path;
    char **texts;

    (void)class;
    ENTER(env, 0);
    if (!paths) {
        throw_new(env, "java/lang/NullPointerException", "the paths are null");
        return 0;
    }
    count = (*env)->GetArrayLength(env, paths);
    if (!(texts = calloc((size_t)count + 1, sizeof *texts))) {
        throw_new(env, "java/lang/OutOfMemoryError", "there is no memory for the paths");
        return 0;
    }
    if (policy && !(policy_text = text_of(env, policy))) {
        free(texts);
        return 0;
    }
    options.policy = policy_text;
    for (; known < count; known++) {
        path = (*env)->GetObjectArrayElement(env, paths, known);
        if (!(texts[known] = text_of(env, path)))
            break;
        (*env)->DeleteLocalRef(env, path);
    }
    if (known == count)
        is_ok(env,
              eyas_run_open_with(HANDLE(eyas_client, client), (const char *const *)texts,
                                 (size_t)count, &options, sizeof options, &run),
              count == 1 ? (*env)->GetObjectArrayElement(env, paths, 0) : NULL);
    for (known = 0; known < count; known++)
        free(texts[known]);
    free(texts);
    free(policy_text);
    return NUMBER(run);
}

NATIVE(jlong, joinRun)(JNIEnv *env, jclass class, jlong client, jbyteArray address)
{
    eyas_run *run = NULL;
    char *text;

    (void)class;
    ENTER(env, 0);
    if (!(text = text_of(env, address)))
        return 0;
    is_ok(env, eyas_run_join(HANDLE(eyas_client, client), text, &run), NULL);
    free(text);
    return NUMBER(run);
}

NATIVE(jbyteArray, runAddress)(JNIEnv *env, jclass class, jlong run)
{
    const char *address;

    (void)class;
    ENTER(env, NULL);
    if (!is_ok(env, eyas_run_address(HANDLE(eyas_run, run), &address), NULL))
        return NULL;
    return array_of_text(env, address);
}

/* Writes how a run stands, in the order of RunInfo. */
static void put_run(JNIEnv *env, eyas_status status, const eyas_run_info *info, jlongArray found)
{
    if (is_ok(env, status, NULL)) {
        const jlong numbers[] = {(jlong)info->chunks, (jlong)info->committed_chunks,
                                 (jlong)info->outputs, (jlong)info->is_complete};
        put_numbers(env, found, numbers, 4);
    }
}

NATIVE(void, runStatus)(JNIEnv *env, jclass class, jlong run, jlongArray found)
{
    eyas_run_info info;

    (void)class;
    ENTER(env, );
    put_run(env, eyas_run_status(HANDLE(eyas_run, run), &info, sizeof info), &info, found);
}

NATIVE(void, waitForRun)(JNIEnv *env, jclass class, jlong run, jlong timeout_ms, jlongArray found)
{
    eyas_run_info info;
    eyas_status status;

    (void)class;
    ENTER(env, );
    status = eyas_run_wait(HANDLE(eyas_run, run), (uint64_t)timeout_ms, &info, sizeof info);
    put_run(env, status, &info, found);
}

NATIVE(jbyteArray, runOutput)(JNIEnv *env, jclass class, jlong run, jint number)
{
    const char *path;

    (void)class;
    ENTER(env, NULL);
    if (!has_next(env, eyas_run_output(HANDLE(eyas_run, run), (uint32_t)number, &path), NULL))
        return NULL;
    return array_of_text(env, path);
}

NATIVE(void, endRun)(JNIEnv *env, jclass class, jlong run)
{
    (void)class;
    ENTER(env, );
    is_ok(env, eyas_run_end(HANDLE(eyas_run, run)), NULL);
}

NATIVE(void, closeRun)(JNIEnv *env, jclass class, jlong run)
{
    (void)class;
    ENTER(env, );
    eyas_run_close(HANDLE(eyas_run, run));
}

NATIVE(jlong, openBlock)(JNIEnv *env, jclass class, jlong run)
{
    eyas_block *block = NULL;

    (void)class;
    ENTER(env, 0);
    is_ok(env, eyas_block_open(HANDLE(eyas_run, run), &block), NULL);
    return NUMBER(block);
}

NATIVE(jlong, openTask)(JNIEnv *env, jclass class, jlong run, jint task)
{
    eyas_block *block = NULL;

    (void)class;
    ENTER(env, 0);
    is_ok(env, eyas_block_open_task(HANDLE(eyas_run, run), (uint32_t)task, &block), NULL);
    return NUMBER(block);
}

/* Writes the offset of the next piece, and its file and content. */
NATIVE(jboolean, nextPiece)(JNIEnv *env, jclass class, jlong block, jlong timeout_ms,
                            jlongArray offset, jobjectArray pair)
{
    jbyteArray file, content;
    eyas_status status;
    eyas_piece piece;

    (void)class;
    ENTER(env, JNI_FALSE);
    status = eyas_block_next(HANDLE(eyas_block, block), (uint64_t)timeout_ms, &piece, sizeof piece);
    if (!has_next(env, status, NULL))
        return JNI_FALSE;
    const jlong place[] = {(jlong)piece.offset};
    if (!(file = array_of_text(env, piece.file)) ||
        !(content = array_of(env, piece.bytes, piece.length)) ||
        !put_numbers(env, offset, place, 1))
        return JNI_FALSE;
    return put_pair(env, pair, file, content) ? JNI_TRUE : JNI_FALSE;
}

NATIVE(void, commit)(JNIEnv *env, jclass class, jlong block, jbyteArray output)
{
    char *bytes;

    (void)class;
    ENTER(env, );
    if (!(bytes = text_of(env, output)))
        return;
    is_ok(env,
          eyas_block_commit(HANDLE(eyas_block, block), bytes,
                            (size_t)(*env)->GetArrayLength(env, output)),
          NULL);
    free(bytes);
}

NATIVE(void, closeBlock)(JNIEnv *env, jclass class, jlong block)
{
    (void)class;
    ENTER(env, );
    eyas_block_close(HANDLE(eyas_block, block));
}
