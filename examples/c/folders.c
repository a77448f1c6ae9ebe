/* A folder of the cluster with a quota, an owner, permissions, and a symbolic link in it. */

#include <eyas.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Ends the program with the message of the last failure. */
static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, eyas_error_message());
    exit(1);
}

int main(void)
{
    eyas_client *client;
    eyas_writer *writer;
    eyas_quota quota;
    eyas_file_info info;
    char *target;

    if (eyas_connect(NULL, &client))
        fail("connect");

    /* At most 1 MB and 3 entries: the link, a file, and one more. */
    if (eyas_make_folder(client, "/team") || eyas_set_quota(client, "/team", 1000000, 3))
        fail("quota");
    if (eyas_set_mode(client, "/team", 0750) ||
        eyas_set_owner(client, "/team", getuid(), EYAS_UNCHANGED))
        fail("owner");
    if (eyas_make_symbolic_link(client, "/team/latest", "run-1"))
        fail("link");
    if (eyas_create(client, "/team/run-1", NULL, 0, &writer) || eyas_write(writer, "42\n", 3) ||
        eyas_writer_close(writer))
        fail("write");

    if (eyas_read_symbolic_link(client, "/team/latest", &target))
        fail("read the link");
    printf("/team/latest -> %s\n", target);
    eyas_text_free(target);
    if (eyas_stat(client, "/team", &info, sizeof info))
        fail("stat");
    printf("mode %o, owner %s\n", (unsigned)info.mode,
           info.uid == getuid() ? "me" : "someone else");
    if (eyas_get_quota(client, "/team", &quota, sizeof quota))
        fail("usage");
    printf("%u of %u bytes, %u of %u entries\n", (unsigned)quota.used_bytes, (unsigned)quota.bytes,
           (unsigned)quota.used_files, (unsigned)quota.files);

    if (eyas_remove(client, "/team/run-1") || eyas_remove(client, "/team/latest") ||
        eyas_remove_folder(client, "/team"))
        fail("remove");
    eyas_client_close(client);
    return 0;
}
