/* Files that are changed at an offset, and where their chunks are: what is possible, and statuses
 * for what is not. */

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
#define FINE(call) EXPECT(call, EYAS_STATUS_OK)

static void print(eyas_client *client, const char *path)
{
    char buffer[64];
    eyas_reader *reader;
    size_t count;

    FINE(eyas_open(client, path, &reader));
    FINE(eyas_read(reader, 0, buffer, sizeof buffer, &count));
    FINE(eyas_reader_close(reader));
    printf("%.*s\n", (int)count, buffer);
}

int main(void)
{
    eyas_client *client;
    eyas_writer *writer, *other;
    eyas_places *places;
    eyas_block_place place;
    eyas_file_info info;
    eyas_write_options options = {"fixed:1", 1024, 1, 0};
    unsigned replicas = 0;

    FINE(eyas_connect(NULL, &client));
    EXPECT(eyas_edit(client, "/new.txt", 0, &writer), EYAS_STATUS_NOT_FOUND);
    FINE(eyas_edit(client, "/new.txt", 1, &writer));
    FINE(eyas_write_at(writer, 6, "world", 5));
    FINE(eyas_write(writer, "!", 1));
    FINE(eyas_write_at(writer, 0, "hello ", 6));
    EXPECT(eyas_stat(client, "/new.txt", &info, sizeof info), EYAS_STATUS_NOT_FOUND);
    FINE(eyas_writer_close(writer));
    print(client, "/new.txt");

    /* Of two that change one version, the second one learns it. */
    FINE(eyas_edit(client, "/new.txt", 0, &writer));
    FINE(eyas_edit(client, "/new.txt", 0, &other));
    FINE(eyas_write_at(writer, 0, "J", 1));
    FINE(eyas_writer_set_size(writer, 5));
    FINE(eyas_write_at(other, 1, "E", 1));
    FINE(eyas_writer_close(writer));
    EXPECT(eyas_writer_close(other), EYAS_STATUS_CHANGED);
    print(client, "/new.txt");

    /* After a change that has failed, none of them appears. */
    FINE(eyas_edit(client, "/new.txt", 0, &writer));
    FINE(eyas_write_at(writer, 0, "x", 1));
    EXPECT(eyas_writer_set_size(writer, UINT64_MAX), EYAS_STATUS_INVALID);
    EXPECT(eyas_write_at(writer, 0, "x", 1), EYAS_STATUS_LOCAL);
    EXPECT(eyas_writer_close(writer), EYAS_STATUS_LOCAL);

    /* A writer that is not closed in time can be closed again. */
    FINE(eyas_edit(client, "/new.txt", 0, &writer));
    FINE(eyas_write_at(writer, 0, "C", 1));
    FINE(eyas_client_set_timeout(client, 0));
    EXPECT(eyas_writer_close(writer), EYAS_STATUS_TIMED_OUT);
    EXPECT(eyas_write_at(writer, 0, "x", 1), EYAS_STATUS_INVALID);
    FINE(eyas_client_set_timeout(client, 60000));
    FINE(eyas_writer_close(writer));
    EXPECT(eyas_writer_close(writer), EYAS_STATUS_BAD_HANDLE);
    print(client, "/new.txt");

    /* What was written from its beginning on has no offsets. */
    FINE(eyas_create(client, "/chunks", &options, sizeof options, &writer));
    EXPECT(eyas_write_at(writer, 0, "x", 1), EYAS_STATUS_INVALID);
    for (int i = 0; i < 300; i++)
        FINE(eyas_write(writer, "0123456789", 10));
    FINE(eyas_writer_close(writer));
    EXPECT(eyas_places_open(client, "/none", &places), EYAS_STATUS_NOT_FOUND);
    FINE(eyas_places_open(client, "/chunks", &places));
    eyas_status status;
    while ((status = eyas_places_next(places, &place, sizeof place)) != EYAS_STATUS_END) {
        FINE(status);
        printf("%llu+%llu in block %llu %s\n", (unsigned long long)place.offset,
               (unsigned long long)place.size_bytes, (unsigned long long)place.block,
               place.node && place.host ? "on a node" : "nowhere");
        replicas++;
    }
    FINE(eyas_places_close(places));

    /* A look-up says how the chunks are; what has the new name is replaced if that is asked for. */
    FINE(eyas_stat(client, "/chunks", &info, sizeof info));
    EXPECT(info.chunk_bytes == 1024 && info.replication == 1 ? EYAS_STATUS_OK : EYAS_STATUS_END,
           EYAS_STATUS_OK);
    EXPECT(eyas_rename(client, "/new.txt", "/chunks"), EYAS_STATUS_EXISTS);
    FINE(eyas_replace(client, "/new.txt", "/chunks"));
    EXPECT(eyas_stat(client, "/new.txt", &info, sizeof info), EYAS_STATUS_NOT_FOUND);
    FINE(eyas_make_folder(client, "/folder"));
    EXPECT(eyas_replace(client, "/chunks", "/folder"), EYAS_STATUS_IS_FOLDER);
    EXPECT(eyas_replace(client, "/folder", "/chunks"), EYAS_STATUS_NOT_FOLDER);
    FINE(eyas_client_close(client));
    printf("%u replicas\n", replicas);
    return 0;
}
