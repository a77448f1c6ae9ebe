/* Says `ready` when a file is open, waits for a line, and says what became of calls without a
 * quorum of the nodes. */

#include <eyas.h>
#include <stdio.h>

int main(void)
{
    eyas_client *client;
    eyas_writer *writer;
    eyas_file_info info;
    eyas_status status;

    if (eyas_connect(NULL, &client) || eyas_client_set_timeout(client, 14000) ||
        eyas_create(client, "/a", NULL, 0, &writer) || eyas_write(writer, "x", 1) ||
        eyas_writer_close(writer) || eyas_create(client, "/b", NULL, 0, &writer)) {
        fprintf(stderr, "%s\n", eyas_error_message());
        return 1;
    }
    puts("ready");
    fflush(stdout);
    getchar();
    /* A leader may answer until it notices that the others are gone. */
    do
        status = eyas_stat(client, "/a", &info, sizeof info);
    while (status == EYAS_STATUS_OK);
    printf("%s: %s\n", eyas_status_name(status), eyas_error_message());
    eyas_write(writer, "x", 1);
    status = eyas_writer_close(writer);
    printf("%s: %s\n", eyas_status_name(status), eyas_error_message());
    eyas_client_close(client);
    return 0;
}
