/* Writes a file of the cluster, appends to it, reads it, and lists its folder. */

#include <eyas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program with the message of the last failure. */
static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, eyas_error_message());
    exit(1);
}

int main(void)
{
    const char *first = "Call me Ishmael.\n", *second = "Some years ago\n";
    char buffer[64];
    eyas_client *client;
    eyas_writer *writer;
    eyas_reader *reader;
    eyas_listing *listing;
    eyas_file_info info;
    eyas_status status;
    const char *name;
    size_t count;

    if (eyas_connect(NULL, &client))
        fail("connect");

    /* The file appears when its writer is closed, and not before. */
    if (eyas_create(client, "/books/draft.txt", NULL, 0, &writer) ||
        eyas_write(writer, first, strlen(first)))
        fail("create");
    if (eyas_stat(client, "/books/draft.txt", &info, sizeof info) != EYAS_STATUS_NOT_FOUND)
        fail("the file has appeared too early");
    if (eyas_writer_close(writer))
        fail("close");
    if (eyas_append(client, "/books/draft.txt", &writer) ||
        eyas_write(writer, second, strlen(second)) || eyas_writer_close(writer))
        fail("append");
    if (eyas_rename(client, "/books/draft.txt", "/books/whale.txt"))
        fail("rename");

    /* Like pread(): from any offset, and less than asked only at the end of the file. */
    if (eyas_open(client, "eyas:///books/whale.txt", &reader) ||
        eyas_read(reader, 8, buffer, sizeof buffer, &count))
        fail("read");
    printf("%.*s", (int)count, buffer);
    eyas_reader_close(reader);

    if (eyas_list(client, "/books", 0, &listing))
        fail("list");
    while ((status = eyas_listing_next(listing, &name, &info, sizeof info)) == EYAS_STATUS_OK)
        printf("%s: %u bytes\n", name, (unsigned)info.size_bytes);
    eyas_listing_close(listing);
    if (status != EYAS_STATUS_END || eyas_remove(client, "/books/whale.txt") ||
        eyas_remove_folder(client, "/books"))
        fail("remove");
    eyas_client_close(client);
    return 0;
}
