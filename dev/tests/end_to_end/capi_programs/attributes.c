/* Links, owners, permissions, named attributes and quotas: what is possible, and statuses for what
 * is not. */

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

/* What programs note beside the content of /a. */
static void named_attributes(eyas_client *client)
{
    static const char large[64 << 10];
    char long_name[252] = "";
    char value[4];
    size_t length;
    eyas_attributes *attributes;
    const char *name;
    const void *next;

    memset(long_name, 'n', 251);
    EXPECT(eyas_set_attribute(client, "/a", "colour", "r\0d", 3, EYAS_ATTRIBUTE_PRESENT),
           EYAS_STATUS_NO_ATTRIBUTE);
    EXPECT(eyas_set_attribute(client, "/a", "colour", "r\0d", 3, EYAS_ATTRIBUTE_NEW),
           EYAS_STATUS_OK);
    EXPECT(eyas_set_attribute(client, "/a", "colour", "blue", 4, EYAS_ATTRIBUTE_NEW),
           EYAS_STATUS_EXISTS);
    EXPECT(eyas_set_attribute(client, "/a", "big", large, sizeof large, 0),
           EYAS_STATUS_ATTRIBUTES_FULL);
    EXPECT(eyas_set_attribute(client, "/a", long_name, "x", 1, 0), EYAS_STATUS_INVALID);
    EXPECT(eyas_set_attribute(client, "/a", "eyas.format", "x", 1, 0), EYAS_STATUS_INVALID);
    EXPECT(eyas_set_attribute(client, "/a", "colour", "x", 1, 3), EYAS_STATUS_INVALID);
    EXPECT(eyas_set_attribute(client, "/a", NULL, "x", 1, 0), EYAS_STATUS_INVALID);
    EXPECT(eyas_set_attribute(client, "/a", "colour", NULL, 1, 0), EYAS_STATUS_INVALID);
    EXPECT(eyas_set_attribute(client, "/none", "colour", "x", 1, 0), EYAS_STATUS_NOT_FOUND);
    EXPECT(eyas_set_attribute(client, "/a", "empty", NULL, 0, 0), EYAS_STATUS_OK);
    EXPECT(eyas_get_attribute(client, "/a", "colour", NULL, 0, &length), EYAS_STATUS_OK);
    EXPECT(eyas_get_attribute(client, "/a", "colour", value, 2, &length), EYAS_STATUS_INVALID);
    EXPECT(eyas_get_attribute(client, "/a", "colour", value, sizeof value, NULL),
           EYAS_STATUS_INVALID);
    EXPECT(eyas_get_attribute(client, "/a", "size", value, sizeof value, &length),
           EYAS_STATUS_NO_ATTRIBUTE);
    EXPECT(eyas_get_attribute(client, "/a", "colour", value, sizeof value, &length),
           EYAS_STATUS_OK);
    if (length != 3 || memcmp(value, "r\0d", 3))
        abort();
    EXPECT(eyas_attributes_open(client, "/none", &attributes), EYAS_STATUS_NOT_FOUND);
    EXPECT(eyas_attributes_open(client, "/a", &attributes), EYAS_STATUS_OK);
    EXPECT(eyas_attributes_next(attributes, &name, &next, NULL), EYAS_STATUS_INVALID);
    EXPECT(eyas_attributes_next(attributes, &name, &next, &length), EYAS_STATUS_OK);
    if (strcmp(name, "colour") || length != 3 || memcmp(next, "r\0d", 3))
        abort();
    EXPECT(eyas_attributes_next(attributes, &name, &next, &length), EYAS_STATUS_OK);
    if (strcmp(name, "empty") || length)
        abort();
    EXPECT(eyas_attributes_next(attributes, &name, &next, &length), EYAS_STATUS_END);
    EXPECT(eyas_attributes_close(attributes), EYAS_STATUS_OK);
    EXPECT(eyas_attributes_next(attributes, &name, &next, &length), EYAS_STATUS_BAD_HANDLE);
    EXPECT(eyas_remove_attribute(client, "/a", "colour"), EYAS_STATUS_OK);
    EXPECT(eyas_remove_attribute(client, "/a", "colour"), EYAS_STATUS_NO_ATTRIBUTE);
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

    named_attributes(client);

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
