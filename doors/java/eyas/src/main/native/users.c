/* Names of users and groups, as this machine has them. */

#define _POSIX_C_SOURCE 200809L

#include "glue.h"

#include <grp.h>
#include <pwd.h>
#include <stdlib.h>

/* Memory for the entry of a user or group, bytes. Members of a larger group do not fit: it has no
 * name then. */
#define ENTRY_BYTES (64 << 10)

static char *entry_memory(JNIEnv *env)
{
    char *memory = malloc(ENTRY_BYTES);

    if (!memory)
        throw_new(env, "java/lang/OutOfMemoryError", "there is no memory for the entry of a user");
    return memory;
}

/* The name of a user or group; null if there is none. */
NATIVE(jbyteArray, nameOf)(JNIEnv *env, jclass class, jint id, jboolean is_group)
{
    struct passwd user, *found_user = NULL;
    struct group group, *found_group = NULL;
    jbyteArray name = NULL;
    char *memory;

    (void)class;
    ENTER(env, NULL);
    if (!(memory = entry_memory(env)))
        return NULL;
    if (is_group) {
        if (!getgrgid_r((gid_t)id, &group, memory, ENTRY_BYTES, &found_group) && found_group)
            name = array_of_text(env, found_group->gr_name);
    } else if (!getpwuid_r((uid_t)id, &user, memory, ENTRY_BYTES, &found_user) && found_user) {
        name = array_of_text(env, found_user->pw_name);
    }
    free(memory);
    return name;
}

/* The id of a user or group; -1 if there is none. */
NATIVE(jlong, idOf)(JNIEnv *env, jclass class, jbyteArray name, jboolean is_group)
{
    struct passwd user, *found_user = NULL;
    struct group group, *found_group = NULL;
    char *memory = NULL, *text;
    jlong id = -1;

    (void)class;
    ENTER(env, -1);
    if ((text = text_of(env, name)) && (memory = entry_memory(env))) {
        if (is_group) {
            if (!getgrnam_r(text, &group, memory, ENTRY_BYTES, &found_group) && found_group)
                id = (jlong)found_group->gr_gid;
        } else if (!getpwnam_r(text, &user, memory, ENTRY_BYTES, &found_user) && found_user) {
            id = (jlong)found_user->pw_uid;
        }
    }
    free(memory);
    free(text);
    return id;
}
