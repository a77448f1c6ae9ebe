/* Links, owners, permissions and quotas: what is possible, and statuses for what is not. */

#include <eyas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(call, expected)                                                                  \
    do {                                                                                        \
        eyas_status got = (call);                                                               \
        if (got != (expected)) {                                                                \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, eyas_status_name((int)got),          \
                    eyas_error_message());                                                      \
            exit(1);                                                                            \
        }                                                                                       \
    } while (0)

static void write_file(eyas_client *client, const char *path, size_t bytes, eyas_status expected)
{
    static const char content[2000];
    eyas_writer *writer;
    eyas_status status;

    status = eyas_create(client, path, NULL, 0, &writer);
    if (status == EYAS_STATUS_OK) {
        status = eyas_write(writer, content, bytes);
        if (status == EYAS_STATUS_OK)
            status = eyas_writer_close(writer);
        else
            eyas_writer_discard(writer);
    }
    EXPECT(status, expected);
}

int main(void)
{
    eyas_client *client;
    eyas_file_info info;
    eyas_quota quota;
    char *target;

    EXPECT(eyas_connect(NULL, &client), EYAS_STATUS_OK);
    write_file(client, "/a", 1, EYAS_STATUS_OK);

    EXPECT(eyas_make_symbolic_link(client, "/links/deep/one", "../../a"), EYAS_STATUS_OK);
    EXPECT(eyas_make_symbolic_link(client, "/links/deep/one", "b"), EYAS_STATUS_EXISTS);
    EXPECT(eyas_make_symbolic_link(client, "/links/two", ""), EYAS_STATUS_INVALID);
    EXPECT(eyas_make_symbolic_link(client, "/links/two", NULL), EYAS_STATUS_INVALID);
    EXPECT(eyas_make_symbolic_link(client, "links/two", "a"), EYAS_STATUS_INVALID);
    EXPECT(eyas_make_symbolic_link(client, "/a/two", "a"), EYAS_STATUS_NOT_FOLDER);
    EXPECT(eyas_read_symbolic_link(client, "/links/deep/one", &target), EYAS_STATUS_OK);
    if (strcmp(target, "../../a"))
        abort();
    eyas_text_free(target);
    EXPECT(eyas_read_symbolic_link(client, "/a", &target), EYAS_STATUS_INVALID);
    EXPECT(eyas_read_symbolic_link(client, "/none", &target), EYAS_STATUS_NOT_FOUND);
    EXPECT(eyas_read_symbolic_link(client, "/a", NULL), EYAS_STATUS_INVALID);

    EXPECT(eyas_set_mode(client, "/a", 04640), EYAS_STATUS_OK);
    EXPECT(eyas_set_mode(client, "/a", 010000), EYAS_STATUS_INVALID);
    EXPECT(eyas_set_mode(client, "/none", 0640), EYAS_STATUS_NOT_FOUND);
    EXPECT(eyas_set_owner(client, "/a", 12345, EYAS_UNCHANGED), EYAS_STATUS_OK);
    EXPECT(eyas_set_owner(client, "/a", EYAS_UNCHANGED, 54321), EYAS_STATUS_OK);
    EXPECT(eyas_set_modified(client, "/a", 1000000007), EYAS_STATUS_OK);
    EXPECT(eyas_stat(client, "/a", &info, sizeof info), EYAS_STATUS_OK);
    if (info.mode != 04640 || info.uid != 12345 || info.gid != 54321 ||
        info.modified_ns != 1000000007 || info.size_bytes != 1)
        abort();

    EXPECT(eyas_make_folder(client, "/bounded"), EYAS_STATUS_OK);
    EXPECT(eyas_get_quota(client, "/bounded", &quota, sizeof quota), EYAS_STATUS_OK);
    if (quota.bytes != EYAS_NO_LIMIT || quota.files != EYAS_NO_LIMIT || quota.used_bytes ||
        quota.used_files)
        abort();
    EXPECT(eyas_set_quota(client, "/bounded", 1000, EYAS_NO_LIMIT), EYAS_STATUS_OK);
    write_file(client, "/bounded/large", 2000, EYAS_STATUS_QUOTA);
    write_file(client, "/bounded/small", 900, EYAS_STATUS_OK);
    EXPECT(eyas_get_quota(client, "/bounded", &quota, sizeof quota), EYAS_STATUS_OK);
    if (quota.bytes != 1000 || quota.files != EYAS_NO_LIMIT || quota.used_bytes != 900 ||
        quota.used_files != 1)
        abort();
    EXPECT(eyas_set_quota(client, "/bounded", EYAS_NO_LIMIT, 1), EYAS_STATUS_OK);
    EXPECT(eyas_make_symbolic_link(client, "/bounded/link", "small"), EYAS_STATUS_QUOTA);
    EXPECT(eyas_set_quota(client, "/bounded", EYAS_NO_LIMIT, EYAS_NO_LIMIT), EYAS_STATUS_OK);
    EXPECT(eyas_make_symbolic_link(client, "/bounded/link", "small"), EYAS_STATUS_OK);
    EXPECT(eyas_set_quota(client, "/a", 1, 1), EYAS_STATUS_NOT_FOLDER);
    EXPECT(eyas_set_quota(client, "/none", 1, 1), EYAS_STATUS_NOT_FOUND);
    EXPECT(eyas_get_quota(client, "/bounded", NULL, sizeof quota), EYAS_STATUS_INVALID);
    EXPECT(eyas_get_quota(client, "/bounded", &quota, 8), EYAS_STATUS_INVALID);
    EXPECT(eyas_set_mode(NULL, "/a", 0), EYAS_STATUS_BAD_HANDLE);
    EXPECT(eyas_client_close(client), EYAS_STATUS_OK);
    puts("fine");
    return 0;
}
