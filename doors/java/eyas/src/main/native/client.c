/* The client: names, attributes and places of files. */

#include "glue.h"

#include <stdlib.h>
#include <string.h>

/* Most bytes of a named attribute. */
#define ATTRIBUTE_BYTES (64 << 10)

/* A function of the library that takes a path. */
typedef eyas_status one_path(eyas_client *client, const char *path);
typedef eyas_status two_paths(eyas_client *client, const char *first, const char *second);

static void with_path(JNIEnv *env, jlong client, jbyteArray path, one_path *call)
{
    char *text;

    ENTER(env, );
    if (!(text = text_of(env, path)))
        return;
    is_ok(env, call(HANDLE(eyas_client, client), text), path);
    free(text);
}

static void with_paths(JNIEnv *env, jlong client, jbyteArray first, jbyteArray second,
                       two_paths *call)
{
    char *from, *to = NULL;

    ENTER(env, );
    if ((from = text_of(env, first)) && (to = text_of(env, second))) {
        const eyas_status status = call(HANDLE(eyas_client, client), from, to);
        is_ok(env, status, status == EYAS_STATUS_EXISTS ? second : first);
    }
    free(from);
    free(to);
}

NATIVE(jlong, connect)(JNIEnv *env, jclass class, jbyteArray name, jboolean is_access)
{
    eyas_client *client = NULL;
    eyas_status status;
    char *text = NULL;

    (void)class;
    ENTER(env, 0);
    if ((name || is_access) && !(text = text_of(env, name)))
        return 0;
    status = is_access ? eyas_connect_access(text, &client) : eyas_connect(text, &client);
    is_ok(env, status, NULL);
    free(text);
    return NUMBER(client);
}

NATIVE(void, setTimeout)(JNIEnv *env, jclass class, jlong client, jlong timeout_ms)
{
    (void)class;
    ENTER(env, );
    is_ok(env, eyas_client_set_timeout(HANDLE(eyas_client, client), (uint64_t)timeout_ms), NULL);
}

NATIVE(void, closeClient)(JNIEnv *env, jclass class, jlong client)
{
    (void)class;
    ENTER(env, );
    eyas_client_close(HANDLE(eyas_client, client));
}

NATIVE(void, stat)(JNIEnv *env, jclass class, jlong client, jbyteArray path, jlongArray found)
{
    eyas_file_info info;
    char *text;

    (void)class;
    ENTER(env, );
    if (!(text = text_of(env, path)))
        return;
    if (is_ok(env, eyas_stat(HANDLE(eyas_client, client), text, &info, sizeof info), path))
        put_info(env, found, &info);
    free(text);
}

NATIVE(void, rename)(JNIEnv *env, jclass class, jlong client, jbyteArray from, jbyteArray to,
                     jboolean replaces)
{
    (void)class;
    with_paths(env, client, from, to, replaces ? eyas_replace : eyas_rename);
}

NATIVE(void, makeFolder)(JNIEnv *env, jclass class, jlong client, jbyteArray path)
{
    (void)class;
    with_path(env, client, path, eyas_make_folder);
}

NATIVE(void, removeFolder)(JNIEnv *env, jclass class, jlong client, jbyteArray path)
{
    (void)class;
    with_path(env, client, path, eyas_remove_folder);
}

NATIVE(void, remove)(JNIEnv *env, jclass class, jlong client, jbyteArray path)
{
    (void)class;
    with_path(env, client, path, eyas_remove);
}

NATIVE(jlong, openListing)(JNIEnv *env, jclass class, jlong client, jbyteArray folder,
                           jboolean is_recursive)
{
    eyas_listing *listing = NULL;
    char *text;

    (void)class;
    ENTER(env, 0);
    if (!(text = text_of(env, folder)))
        return 0;
    is_ok(env, eyas_list(HANDLE(eyas_client, client), text, is_recursive ? 1 : 0, &listing),
          folder);
    free(text);
    return NUMBER(listing);
}

NATIVE(jbyteArray, nextEntry)(JNIEnv *env, jclass class, jlong listing, jlongArray found)
{
    eyas_file_info info;
    eyas_status status;
    const char *name;

    (void)class;
    ENTER(env, NULL);
    status = eyas_listing_next(HANDLE(eyas_listing, listing), &name, &info, sizeof info);
    if (!has_next(env, status, NULL) || !put_info(env, found, &info))
        return NULL;
    return array_of_text(env, name);
}

NATIVE(void, closeListing)(JNIEnv *env, jclass class, jlong listing)
{
    (void)class;
    ENTER(env, );
    eyas_listing_close(HANDLE(eyas_listing, listing));
}

NATIVE(jlong, openPlaces)(JNIEnv *env, jclass class, jlong client, jbyteArray path)
{
    eyas_places *places = NULL;
    char *text;

    (void)class;
    ENTER(env, 0);
    if (!(text = text_of(env, path)))
        return 0;
    is_ok(env, eyas_places_open(HANDLE(eyas_client, client), text, &places), path);
    free(text);
    return NUMBER(places);
}

/* Writes the numbers of a replica, and its node and host, which may be null. */
NATIVE(jboolean, nextPlace)(JNIEnv *env, jclass class, jlong places, jlongArray numbers,
                            jobjectArray texts)
{
    eyas_block_place place;
    jbyteArray node, host;

    (void)class;
    ENTER(env, JNI_FALSE);
    if (!has_next(env, eyas_places_next(HANDLE(eyas_places, places), &place, sizeof place), NULL))
        return JNI_FALSE;
    const jlong found[] = {(jlong)place.offset, (jlong)place.size_bytes, (jlong)place.block,
                           (jlong)place.is_near};
    node = array_of_text(env, place.node);
    host = array_of_text(env, place.host);
    if ((*env)->ExceptionCheck(env) || !put_numbers(env, numbers, found, 4))
        return JNI_FALSE;
    return put_pair(env, texts, node, host) ? JNI_TRUE : JNI_FALSE;
}

NATIVE(void, closePlaces)(JNIEnv *env, jclass class, jlong places)
{
    (void)class;
    ENTER(env, );
    eyas_places_close(HANDLE(eyas_places, places));
}

NATIVE(void, setMode)(JNIEnv *env, jclass class, jlong client, jbyteArray path, jint mode)
{
    char *text;

    (void)class;
    ENTER(env, );
    if (!(text = text_of(env, path)))
        return;
    is_ok(env, eyas_set_mode(HANDLE(eyas_client, client), text, (uint32_t)mode), path);
    free(text);
}

NATIVE(void, setOwner)(JNIEnv *env, jclass class, jlong client, jbyteArray path, jint uid, jint gid)
{
    char *text;

    (void)class;
    ENTER(env, );
    if (!(text = text_of(env, path)))
        return;
    is_ok(env, eyas_set_owner(HANDLE(eyas_client, client), text, (uint32_t)uid, (uint32_t)gid),
          path);
    free(text);
}

NATIVE(void, setModified)(JNIEnv *env, jclass class, jlong client, jbyteArray path,
                          jlong modified_ns)
{
    char *text;

    (void)class;
    ENTER(env, );
    if (!(text = text_of(env, path)))
        return;
    is_ok(env, eyas_set_modified(HANDLE(eyas_client, client), text, (uint64_t)modified_ns), path);
    free(text);
}

NATIVE(void, makeSymbolicLink)(JNIEnv *env, jclass class, jlong client, jbyteArray path,
                               jbyteArray target)
{
    (void)class;
    with_paths(env, client, path, target, eyas_make_symbolic_link);
}

NATIVE(jbyteArray, readSymbolicLink)(JNIEnv *env, jclass class, jlong client, jbyteArray path)
{
    char *text, *target = NULL;
    jbyteArray found = NULL;

    (void)class;
    ENTER(env, NULL);
    if (!(text = text_of(env, path)))
        return NULL;
    if (is_ok(env, eyas_read_symbolic_link(HANDLE(eyas_client, client), text, &target), path))
        found = array_of_text(env, target);
    eyas_text_free(target);
    free(text);
    return found;
}

NATIVE(void, setQuota)(JNIEnv *env, jclass class, jlong client, jbyteArray folder, jlong bytes,
                       jlong files)
{
    char *text;

    (void)class;
    ENTER(env, );
    if (!(text = text_of(env, folder)))
        return;
    is_ok(env,
          eyas_set_quota(HANDLE(eyas_client, client), text, (uint64_t)bytes, (uint64_t)files),
          folder);
    free(text);
}

NATIVE(void, quota)(JNIEnv *env, jclass class, jlong client, jbyteArray folder, jlongArray found)
{
    eyas_quota quota;
    char *text;

    (void)class;
    ENTER(env, );
    if (!(text = text_of(env, folder)))
        return;
    if (is_ok(env, eyas_get_quota(HANDLE(eyas_client, client), text, &quota, sizeof quota),
              folder)) {
        const jlong numbers[] = {(jlong)quota.bytes, (jlong)quota.files, (jlong)quota.used_bytes,
                                 (jlong)quota.used_files};
        put_numbers(env, found, numbers, 4);
    }
    free(text);
}

NATIVE(void, setAttribute)(JNIEnv *env, jclass class, jlong client, jbyteArray path,
                           jbyteArray name, jbyteArray value, jint condition)
{
    char *text, *key = NULL, *bytes = NULL;

    (void)class;
    ENTER(env, );
    if ((text = text_of(env, path)) && (key = text_of(env, name)) &&
        (bytes = text_of(env, value)))
        is_ok(env,
              eyas_set_attribute(HANDLE(eyas_client, client), text, key, bytes,
                                 (size_t)(*env)->GetArrayLength(env, value), (uint32_t)condition),
              path);
    free(text);
    free(key);
    free(bytes);
}

/* The value of an attribute; null if there is none of this name. */
NATIVE(jbyteArray, attribute)(JNIEnv *env, jclass class, jlong client, jbyteArray path,
                              jbyteArray name)
{
    char *text, *key = NULL, *bytes = NULL;
    jbyteArray found = NULL;
    eyas_status status;
    size_t length;

    (void)class;
    ENTER(env, NULL);
    if ((text = text_of(env, path)) && (key = text_of(env, name))) {
        if ((bytes = malloc(ATTRIBUTE_BYTES))) {
            status = eyas_get_attribute(HANDLE(eyas_client, client), text, key, bytes,
                                        ATTRIBUTE_BYTES, &length);
            if (status != EYAS_STATUS_NO_ATTRIBUTE && is_ok(env, status, path))
                found = array_of(env, bytes, length);
        } else {
            throw_new(env, "java/lang/OutOfMemoryError", "there is no memory for an attribute");
        }
    }
    free(text);
    free(key);
    free(bytes);
    return found;
}

NATIVE(void, removeAttribute)(JNIEnv *env, jclass class, jlong client, jbyteArray path,
                              jbyteArray name)
{
    (void)class;
    with_paths(env, client, path, name, eyas_remove_attribute);
}

NATIVE(jlong, openAttributes)(JNIEnv *env, jclass class, jlong client, jbyteArray path)
{
    eyas_attributes *attributes = NULL;
    char *text;

    (void)class;
    ENTER(env, 0);
    if (!(text = text_of(env, path)))
        return 0;
    is_ok(env, eyas_attributes_open(HANDLE(eyas_client, client), text, &attributes), path);
    free(text);
    return NUMBER(attributes);
}

/* Writes the name and the value of the next attribute. */
NATIVE(jboolean, nextAttribute)(JNIEnv *env, jclass class, jlong attributes, jobjectArray pair)
{
    jbyteArray key, bytes;
    eyas_status status;
    const void *value;
    const char *name;
    size_t length;

    (void)class;
    ENTER(env, JNI_FALSE);
    status = eyas_attributes_next(HANDLE(eyas_attributes, attributes), &name, &value, &length);
    if (!has_next(env, status, NULL) || !(key = array_of_text(env, name)) ||
        !(bytes = array_of(env, value, length)))
        return JNI_FALSE;
    return put_pair(env, pair, key, bytes) ? JNI_TRUE : JNI_FALSE;
}

NATIVE(void, closeAttributes)(JNIEnv *env, jclass class, jlong attributes)
{
    (void)class;
    ENTER(env, );
    eyas_attributes_close(HANDLE(eyas_attributes, attributes));
}
